"""The documentation that is installed with gpuform, page by page."""

from gpuform.stacks.manual.pages import NoSuchPage, Page, find_page, page_names, read_page

__all__ = ["NoSuchPage", "Page", "find_page", "page_names", "read_page"]
