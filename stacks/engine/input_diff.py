"""The engine's own comparison of two property maps, for providers that leave it to the engine."""

from gpuform.stacks.engine import values
from gpuform.stacks.engine.values import PropertyMap


def changed_keys(olds: PropertyMap, news: PropertyMap) -> list[str]:
    """Top-level properties whose plain values differ; secrets compare by what they hide."""
    return sorted(
        key
        for key in olds.keys() | news.keys()
        if not (
            key in olds
            and key in news
            and values.equal(values.unwrap_secrets(olds[key]), values.unwrap_secrets(news[key]))
        )
    )
