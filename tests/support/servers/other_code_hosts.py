"""Add the routes of Azure DevOps and Bitbucket Cloud to the fake code host.

Forms of answers: learn.microsoft.com/rest/api/azure/devops/git (7.1: pull request threads, thread
comments, labels, statuses) with the definitions of MicrosoftDocs/vsts-rest-api-specs, and
developer.atlassian.com/cloud/bitbucket/rest (2.0: pull requests, commit statuses, pagination). Both
keep deleted comments in their lists, without text. Azure DevOps documents no limit of a comment's
length and no message for it; the message here is made up. Bitbucket's limit and words are those of
reports in public issues.
"""

from typing import TYPE_CHECKING, Any

from flask import Flask, jsonify, request

if TYPE_CHECKING:
    from support.servers.code_host import FakeCodeHost

AZURE_ROOT = "/organization/team one/_apis/git/repositories/r/pullRequests/<int:number>"
BITBUCKET_ROOT = "/2.0/repositories/w/r"


def find_comment(items: list[dict[str, Any]], comment: int) -> dict[str, Any] | None:
    return next((item for item in items if item["id"] == comment), None)


def list_with_deleted(code_host: "FakeCodeHost") -> list[dict[str, Any]]:
    """Return all comments in the order of their ids, those without a text deleted."""
    deleted = [comment | {"body": None} for comment in code_host.deleted]
    return sorted([*code_host.comments, *deleted], key=lambda comment: comment["id"])


def delete_comment(code_host: "FakeCodeHost", comment: dict[str, Any]) -> None:
    code_host.comments.remove(comment)
    code_host.deleted.append(comment)


def add_azure_routes(app: Flask, code_host: "FakeCodeHost") -> None:  # noqa: C901 - a function for each route
    def refuse(message: str, status: int) -> Any:
        body = {"$id": "1", "innerException": None, "message": message, "errorCode": 0}
        return jsonify(body), status

    def to_thread(comment: dict[str, Any]) -> dict[str, Any]:
        first = {
            "id": 1,
            "parentCommentId": 0,
            "author": {"id": f"identity-{comment['user']['id']}", "displayName": "a name"},
            "commentType": "text",
        }
        is_deleted = comment["body"] is None
        first |= {"isDeleted": True} if is_deleted else {"content": comment["body"]}
        return {"id": comment["id"], "comments": [first], "isDeleted": is_deleted}

    def check_request(number: int) -> Any:
        if request.args.get("api-version") != "7.1":
            return refuse("No api-version was supplied for the request.", 400)
        if number != code_host.number:
            return refuse("TF401180: The requested pull request was not found.", 404)
        content = (request.get_json(silent=True) or {}).get("content", "")
        if len(content) > code_host.max_comment_length:
            return refuse("The comment exceeds the maximum length.", 400)
        return None

    @app.get("/organization/_apis/connectionData")
    def connection() -> Any:
        if "preview" not in request.args.get("api-version", ""):
            return refuse("The requested version is under preview.", 400)
        return jsonify(authenticatedUser={"id": "identity-1", "subjectDescriptor": "svc.1"})

    @app.route(f"{AZURE_ROOT}/threads", methods=["GET", "POST"])
    def threads(number: int) -> Any:
        if refused := check_request(number):
            return refused
        if request.method == "GET":
            values = [to_thread(comment) for comment in list_with_deleted(code_host)]
            return jsonify(value=values, count=len(values))
        asked = request.get_json()
        body = asked["comments"][0]["content"]
        if asked["status"] != 4 or len(body) > code_host.max_comment_length:
            return refuse("The comment exceeds the maximum length.", 400)
        return jsonify(to_thread(code_host.add_comment(body)))

    @app.route(f"{AZURE_ROOT}/threads/<int:thread>/comments/1", methods=["PATCH", "DELETE"])
    def first_comment(number: int, thread: int) -> Any:
        if refused := check_request(number):
            return refused
        comment = find_comment(code_host.comments, thread)
        if comment is None:
            return refuse("TF401182: The comment was not found.", 404)
        if request.method == "DELETE":
            delete_comment(code_host, comment)
            return "", 200
        comment["body"] = request.get_json()["content"]
        return jsonify(to_thread(comment)["comments"][0])

    @app.post(f"{AZURE_ROOT}/labels")
    def azure_label(number: int) -> Any:
        code_host.labels.add(request.get_json()["name"])
        return jsonify(id="1", name=request.get_json()["name"], active=True)

    @app.delete(f"{AZURE_ROOT}/labels/<name>")
    def azure_unlabel(number: int, name: str) -> Any:
        if name not in code_host.labels:
            return refuse("TF401444: The label was not found.", 404)
        code_host.labels.remove(name)
        return "", 200

    @app.post(f"{AZURE_ROOT}/statuses")
    def azure_status(number: int) -> Any:
        asked = request.get_json()
        code_host.statuses[asked["context"]["name"]] = (asked["state"], asked["description"])
        return jsonify(asked | {"id": 1})


def add_bitbucket_routes(app: Flask, code_host: "FakeCodeHost") -> None:  # noqa: C901 - as above
    def refuse(message: str, status: int) -> Any:
        return jsonify(type="error", error={"message": message}), status

    def to_answer(comment: dict[str, Any]) -> dict[str, Any]:
        is_bot = comment["user"]["type"] == "Bot"
        user_type = "app_user" if is_bot and code_host.is_installation else "user"
        return {
            "id": comment["id"],
            "content": {"type": "rendered", "raw": comment["body"] or "", "markup": "markdown"},
            "user": {"type": user_type, "uuid": f"{{{comment['user']['id']}}}"},
            "deleted": comment["body"] is None,
            "links": {"html": {"href": comment["html_url"]}},
        }

    def refuse_long_comment() -> Any:
        length = len((request.get_json(silent=True) or {}).get("content", {}).get("raw", ""))
        limit = code_host.max_comment_length
        message = (
            f"content.raw: Ensure this value has at most {limit} characters (it has {length})."
        )
        return refuse(message, 400) if length > limit else None

    @app.get("/2.0/user")
    def bitbucket_user() -> Any:
        if code_host.is_installation:
            return refuse("This API is only accessible with the credentials of a user", 403)
        return jsonify(type="user", uuid="{1}", display_name="me")

    @app.route(f"{BITBUCKET_ROOT}/pullrequests/<int:number>/comments", methods=["GET", "POST"])
    def bitbucket_comments(number: int) -> Any:
        if number != code_host.number:
            return refuse("w/r: pull request not found", 404)
        if request.method == "POST":
            body = request.get_json()["content"]["raw"]
            return refuse_long_comment() or (jsonify(to_answer(code_host.add_comment(body))), 201)
        size, page = int(request.args.get("pagelen", 10)), int(request.args.get("page", 1))
        all_comments = list_with_deleted(code_host)
        values = [to_answer(c) for c in all_comments[(page - 1) * size : page * size]]
        answer = {"values": values, "pagelen": size, "page": page, "size": len(all_comments)}
        if len(all_comments) > page * size:
            # Another host, as behind a proxy: no token may be sent there.
            query = f"pagelen={size}&page={page + 1}"
            answer["next"] = f"https://elsewhere.invalid{request.path}?{query}"
        return jsonify(answer)

    @app.route(
        f"{BITBUCKET_ROOT}/pullrequests/<int:number>/comments/<int:comment_id>",
        methods=["PUT", "DELETE"],
    )
    def bitbucket_comment(number: int, comment_id: int) -> Any:
        comment = find_comment(code_host.comments, comment_id)
        if comment is None:
            return refuse("The comment does not exist.", 404)
        if request.method == "DELETE":
            delete_comment(code_host, comment)
            return "", 204
        if refused := refuse_long_comment():
            return refused
        comment["body"] = request.get_json()["content"]["raw"]
        return jsonify(to_answer(comment))

    @app.get(f"{BITBUCKET_ROOT}/pullrequests/<int:number>")
    def bitbucket_pull_request(number: int) -> Any:
        return jsonify(id=number, source={"commit": {"type": "commit", "hash": code_host.head}})

    @app.post(f"{BITBUCKET_ROOT}/commit/<sha>/statuses/build")
    def build_status(sha: str) -> Any:
        asked = request.get_json()
        if not asked.get("url"):
            return refuse("url: This field is required.", 400)
        code_host.status_commits.add(sha)
        code_host.statuses[asked["key"]] = (asked["state"], asked["description"])
        return jsonify(asked | {"type": "build"}), 201
