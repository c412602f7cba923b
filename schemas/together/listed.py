"""What look-ups find, beside the platform's own words."""

from pydantic import Field

from gpuform.schemas.together.wire import Volume


class ListedVolume(Volume):
    """A shared volume, with what clusters tell of it: the API itself names no region of one."""

    region: str | None = Field(default=None, description="That of the clusters that mount it.")
    cluster_ids: tuple[str, ...] = Field(default=(), description="The clusters that mount it.")
