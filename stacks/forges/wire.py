"""What is read of the forges' answers; whatever else they say is left aside."""

from pydantic import BaseModel, ConfigDict


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


class GitHubUser(_Wire):
    login: str = ""
    type: str = ""


class GitHubComment(_Wire):
    id: int
    body: str | None = None
    html_url: str = ""
    user: GitHubUser | None = None


class GitHubHead(_Wire):
    sha: str


class GitHubPull(_Wire):
    number: int
    head: GitHubHead
    merged_at: str | None = None


class GitHubRun(_Wire):
    head_sha: str | None = None


class GitHubArtifact(_Wire):
    id: int
    expired: bool
    created_at: str | None = None
    workflow_run: GitHubRun | None = None


class GitHubArtifacts(_Wire):
    artifacts: list[GitHubArtifact]


class GitLabUser(_Wire):
    id: int


class GitLabNote(_Wire):
    id: int
    body: str = ""
    system: bool = False
    author: GitLabUser | None = None


class GitLabMergeRequest(_Wire):
    iid: int
    state: str


class GitLabPipeline(_Wire):
    id: int


class GitLabJob(_Wire):
    id: int
    name: str
    status: str
