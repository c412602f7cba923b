"""Serve a fake code host over HTTP, with the answers of the code hosts' documents.

One pull request of one repository, in the forms of all: those of GitHub and GitLab are here, those
of Azure DevOps and Bitbucket in `other_code_hosts`. Tests inject answers and other jobs.
"""

import base64
import io
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flask import Flask, Response, jsonify, request
from support.servers.other_code_hosts import (
    add_azure_routes,
    add_bitbucket_routes,
)
from support.servers.other_code_hosts import find_comment as _find_comment
from werkzeug.serving import WSGIRequestHandler, make_server

TOKEN = "ghs_thetokenofthetests"
LONG_AGO, LATER = "2026-11-20T00:00:00Z", "2026-11-22T00:00:00Z"
ME = {"login": "github-actions[bot]", "type": "Bot", "id": 1}
SOMEBODY = {"login": "somebody", "type": "User", "id": 2}

Answer = tuple[dict[str, Any], int, dict[str, str]]


@dataclass
class Fault:
    """Answer the next `times` requests of a method whose path has this ending with `answer`.

    An answer of None is a broken connection; with `after`, the request has had its effect.
    """

    method: str
    ending: str
    answer: Answer | None
    times: int = 1
    after: bool = False


@dataclass
class FakeCodeHost:
    """The state of the one repository.

    Its names are o/r, GitLab's project 7, `team one/r` of Azure DevOps, and w/r of Bitbucket.
    """

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[dict[str, Any]] = field(default_factory=list)
    """Deleted comments, which Azure DevOps and Bitbucket still list."""
    labels: set[str] = field(default_factory=set)
    statuses: dict[str, tuple[str, str]] = field(default_factory=dict)
    """State and description of each status."""
    status_commits: set[str] = field(default_factory=set)
    """The commits with a status; Azure DevOps has statuses of pull requests instead."""
    is_installation: bool = True
    max_comment_length: int = 65_536
    number: int = 12
    head: str = "0" * 40
    merged: dict[str, str] = field(default_factory=dict)
    """Commit on the default branch -> last commit of the pull request by which it came."""
    merge_commits: dict[str, int] = field(default_factory=dict)
    """Commit on the default branch -> number of the pull request that GitHub's list shows."""
    names_merge_commits: bool = True
    """False is a merge without a commit of its own, as that of a fast-forward."""
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    pipelines: list[dict[str, Any]] = field(default_factory=list)
    """GitLab's pipelines: id, jobs, bridges, and whether it is a child pipeline."""
    faults: list[Fault] = field(default_factory=list)
    meanwhile: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What another job does after the next request of a method."""
    log: list[str] = field(default_factory=list)
    _next: int = 100

    def add_comment(self, body: str, user: dict[str, Any] = ME) -> dict[str, Any]:
        self._next += 1
        comment = {"id": self._next, "body": body, "user": user, "author": user, "system": False}
        self.comments.append(comment | {"html_url": f"https://forge/c/{self._next}"})
        return self.comments[-1]

    def reset(self) -> None:
        """Restore the first state; the address stays."""
        vars(self).update(vars(FakeCodeHost(self.url)))

    def add_artifact(self, name: str, head: str, content: bytes, **more: Any) -> dict[str, Any]:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("plan.json", content)
        self.artifacts.append(
            {
                "id": len(self.artifacts) + 1,
                "name": name,
                "expired": False,
                "created_at": f"2026-11-21T00:00:{len(self.artifacts):02}Z",
                "workflow_run": {"head_sha": head, "repository_id": 1, "head_repository_id": 1},
                "packed": packed.getvalue(),
                **more,
            }
        )
        return self.artifacts[-1]

    def list_requests(self, method: str) -> list[str]:
        return [line for line in self.log if line.startswith(method)]


class _Handler(WSGIRequestHandler):
    """Without lines on stderr; a broken connection is closed without an answer."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's name
        pass

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        self.close_connection = True


@contextmanager
def serve_code_host() -> Iterator[FakeCodeHost]:
    code_host = FakeCodeHost()
    server = make_server(
        "127.0.0.1", 0, _create_app(code_host), threaded=True, request_handler=_Handler
    )
    code_host.url = f"http://127.0.0.1:{server.port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield code_host
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _create_app(code_host: FakeCodeHost) -> Flask:
    app = Flask("code_host")
    app.config["PROPAGATE_EXCEPTIONS"] = True  # a broken connection is the server's to break
    _add_fault_hooks(app, code_host)
    _add_github_routes(app, code_host)
    _add_gitlab_routes(app, code_host)
    add_azure_routes(app, code_host)
    add_bitbucket_routes(app, code_host)
    return app


def _add_fault_hooks(app: Flask, code_host: FakeCodeHost) -> None:
    def find_fault_answer(*, after: bool) -> Any:
        for injected in code_host.faults:
            hit = injected.method == request.method and request.path.endswith(injected.ending)
            if hit and injected.times and injected.after == after:
                injected.times -= 1
                if injected.answer is None:
                    raise ConnectionAbortedError
                body, status, headers = injected.answer
                return jsonify(body), status, headers
        return None

    @app.before_request
    def _apply_fault() -> Any:
        code_host.log.append(f"{request.method} {request.full_path.rstrip('?')}")
        if request.path.startswith("/blob/"):
            return None
        password = base64.b64encode(f":{TOKEN}".encode()).decode()  # Azure DevOps: no user
        authorized = {f"Bearer {TOKEN}", f"Basic {password}"}
        has_token = request.headers.get("Authorization") in authorized
        if not has_token and request.headers.get("PRIVATE-TOKEN") != TOKEN:
            return jsonify(message="Bad credentials"), 401
        return find_fault_answer(after=False)

    @app.after_request
    def _lose_answer(response: Response) -> Response:
        made = find_fault_answer(after=True)
        if other := code_host.meanwhile.pop(request.method, None):
            other()
        return response if made is None else app.make_response(made)


def _paginate(items: list[Any]) -> tuple[list[Any], int, int | None]:
    size, page = int(request.args.get("per_page", 30)), int(request.args.get("page", 1))
    more = len(items) > page * size
    return items[(page - 1) * size : page * size], size, page + 1 if more else None


def _add_github_routes(  # noqa: C901, PLR0915 - a function for each route
    app: Flask, code_host: FakeCodeHost
) -> None:
    def list_page(items: list[Any]) -> Any:
        page, size, following = _paginate(items)
        # Another host, as behind a proxy: no token may be sent there.
        link = f"<https://elsewhere.invalid{request.path}?per_page={size}&page={following}>"
        return jsonify(page), 200, {"Link": f'{link}; rel="next"'} if following else {}

    def refuse_long_comment() -> Any:
        message = f"body is too long (maximum is {code_host.max_comment_length} characters)"
        errors = [{"resource": "IssueComment", "code": "unprocessable", "message": message}]
        return jsonify(message="Validation Failed", errors=errors), 422

    @app.get("/user")
    def user() -> Any:
        refused = jsonify(message="Resource not accessible by integration"), 403
        return refused if code_host.is_installation else jsonify(ME)

    @app.route("/repos/o/r/issues/<int:number>/comments", methods=["GET", "POST"])
    def comments(number: int) -> Any:
        if number != code_host.number:
            return jsonify(message="Not Found"), 404
        if request.method == "GET":
            return list_page(code_host.comments)
        body = request.get_json()["body"]
        return (
            refuse_long_comment()
            if len(body) > code_host.max_comment_length
            else (jsonify(code_host.add_comment(body)), 201)
        )

    @app.route("/repos/o/r/issues/comments/<int:comment>", methods=["PATCH", "DELETE"])
    def comment(comment: int) -> Any:
        stored_comment = _find_comment(code_host.comments, comment)
        if stored_comment is None:
            return jsonify(message="Not Found"), 404
        if request.method == "DELETE":
            code_host.comments.remove(stored_comment)
            return "", 204
        body = request.get_json()["body"]
        if len(body) > code_host.max_comment_length:
            return refuse_long_comment()
        stored_comment["body"] = body
        return jsonify(stored_comment)

    @app.post("/repos/o/r/issues/<int:number>/labels")
    def label(number: int) -> Any:
        code_host.labels.update(request.get_json()["labels"])
        return jsonify([{"name": name} for name in code_host.labels])

    @app.delete("/repos/o/r/issues/<int:number>/labels/<name>")
    def unlabel(number: int, name: str) -> Any:
        if name not in code_host.labels:
            return jsonify(message="Label does not exist"), 404
        code_host.labels.remove(name)
        return jsonify([])

    @app.post("/repos/o/r/statuses/<sha>")
    def status(sha: str) -> Any:
        asked = request.get_json()
        code_host.status_commits.add(sha)
        code_host.statuses[asked["context"]] = (asked["state"], asked["description"])
        return jsonify(asked), 201

    @app.get("/repos/o/r/pulls/<int:number>")
    def pull(number: int) -> Any:
        return jsonify(number=number, head={"sha": code_host.head})

    @app.get("/repos/o/r/pulls")
    def recent_pulls() -> Any:
        assert (request.args["state"], request.args["base"]) == ("closed", "main")
        closed = {"number": 90, "merged_at": None, "head": {"sha": "9" * 40}}
        merged = [
            {
                "number": number,
                "merged_at": "2026-11-21T00:00:00Z",
                "head": {"sha": "8" * 40},
                "merge_commit_sha": sha,
            }
            for sha, number in code_host.merge_commits.items()
        ]
        return list_page([closed, *merged])

    @app.get("/repos/o/r/commits/<sha>/pulls")
    def pulls(sha: str) -> Any:
        head = code_host.merged.get(sha)
        into_main, into_another = {"base": {"ref": "main"}}, {"base": {"ref": "unprotected"}}
        still_open = {"number": 99, "merged_at": None, "head": {"sha": "f" * 40}, **into_main}
        # Pull requests of branches that have the commit, too.
        others = [
            {"number": 98, "merged_at": LONG_AGO, "head": {"sha": "e" * 40}, **into_another},
            {"number": 97, "merged_at": LATER, "head": {"sha": "d" * 40}, **into_main},
        ]
        merged = {
            "number": code_host.number,
            "merged_at": "2026-11-21T00:00:00Z",
            "head": {"sha": head},
            **into_main,
            **({"merge_commit_sha": sha} if code_host.names_merge_commits else {}),
        }
        return list_page([still_open, *others, merged] if head else [still_open])

    @app.get("/repos/o/r/actions/artifacts")
    def artifacts() -> Any:
        matching_artifacts = [a for a in code_host.artifacts if a["name"] == request.args["name"]]
        descriptions = [{k: v for k, v in a.items() if k != "packed"} for a in matching_artifacts]
        return jsonify(total_count=len(descriptions), artifacts=descriptions)

    @app.get("/repos/o/r/actions/artifacts/<int:artifact>/zip")
    def packed(artifact: int) -> Any:
        port = request.host.rpartition(":")[2]
        return "", 302, {"Location": f"http://localhost:{port}/blob/{artifact}"}

    @app.get("/blob/<int:artifact>")
    def blob(artifact: int) -> Any:
        if "Authorization" in request.headers or "PRIVATE-TOKEN" in request.headers:
            return "the token was given away", 400
        return _find_comment(code_host.artifacts, artifact)["packed"]


def _add_gitlab_routes(app: Flask, code_host: FakeCodeHost) -> None:  # noqa: C901, PLR0915 - as above
    root = "/api/v4/projects/7"

    def list_page(items: list[Any]) -> Any:
        page, _, following = _paginate(items)
        return jsonify(page), 200, {"X-Next-Page": str(following or "")}

    def refuse_long_note(body: str) -> Any:
        message = f"is too long (maximum is {code_host.max_comment_length} characters)"
        return (
            (jsonify(message={"note": [message]}), 400)
            if len(body) > code_host.max_comment_length
            else None
        )

    @app.get("/api/v4/user")
    def gitlab_user() -> Any:
        return jsonify(ME)

    @app.route(f"{root}/merge_requests/<int:number>/notes", methods=["GET", "POST"])
    def notes(number: int) -> Any:
        if number != code_host.number:
            return jsonify(message="404 Not found"), 404
        if request.method == "GET":
            return list_page(code_host.comments)
        body = request.get_json()["body"]
        return refuse_long_note(body) or (jsonify(code_host.add_comment(body)), 201)

    @app.route(f"{root}/merge_requests/<int:number>/notes/<int:note>", methods=["PUT", "DELETE"])
    def note(number: int, note: int) -> Any:
        stored_note = _find_comment(code_host.comments, note)
        if stored_note is None:
            return jsonify(message="404 Not found"), 404
        if request.method == "DELETE":
            code_host.comments.remove(stored_note)
            return "", 204
        body = request.get_json()["body"]
        if refused := refuse_long_note(body):
            return refused
        stored_note["body"] = body
        return jsonify(stored_note)

    @app.get(f"{root}/merge_requests/<int:number>")
    def merge_request_details(number: int) -> Any:
        return jsonify(iid=number, state="opened", sha=code_host.head)

    @app.put(f"{root}/merge_requests/<int:number>")
    def merge_request(number: int) -> Any:
        asked = request.get_json()
        code_host.labels -= set(asked["remove_labels"].split(","))
        code_host.labels |= set(asked["add_labels"].split(","))
        return jsonify(iid=number)

    @app.post(f"{root}/statuses/<sha>")
    def gitlab_status(sha: str) -> Any:
        asked = request.get_json()
        code_host.status_commits.add(sha)
        code_host.statuses[asked["name"]] = (asked["state"], asked["description"])
        return jsonify(asked), 201

    @app.get(f"{root}/repository/commits/<sha>/merge_requests")
    def merge_requests(sha: str) -> Any:
        still_open = {"iid": 99, "state": "opened", "target_branch": "main"}
        merged = {"state": "merged", "target_branch": "main"}
        others = [
            {**merged, "iid": 98, "merged_at": LONG_AGO, "target_branch": "unprotected"},
            {**merged, "iid": 97, "merged_at": LATER},
        ]
        own = {**merged, "iid": code_host.number, "merged_at": "2026-11-21T00:00:00.000Z"}
        if code_host.names_merge_commits:
            own["merge_commit_sha"] = sha
        return list_page([still_open, *others, own] if sha in code_host.merged else [still_open])

    @app.get(f"{root}/merge_requests/<int:number>/pipelines")
    def pipelines(number: int) -> Any:
        parents = [pipeline for pipeline in code_host.pipelines if not pipeline.get("is_child")]
        names = ("id", "project_id")
        listed = [{k: pipeline[k] for k in names if k in pipeline} for pipeline in parents]
        return list_page(listed)

    @app.get(f"{root}/pipelines/<int:pipeline>/jobs")
    def jobs(pipeline: int) -> Any:
        pipeline_jobs = _find_comment(code_host.pipelines, pipeline)["jobs"]
        return list_page([{k: v for k, v in job.items() if k != "files"} for job in pipeline_jobs])

    @app.get(f"{root}/pipelines/<int:pipeline>/bridges")
    def bridges(pipeline: int) -> Any:
        return list_page(_find_comment(code_host.pipelines, pipeline).get("bridges", []))

    @app.get(f"{root}/jobs/<int:job>/artifacts/<path:file>")
    def artifact(job: int, file: str) -> Any:
        all_jobs = [
            pipeline_job for pipeline in code_host.pipelines for pipeline_job in pipeline["jobs"]
        ]
        files = _find_comment(all_jobs, job).get("files", {})
        if file not in files:
            return jsonify(message="404 Not found"), 404
        return files[file]
