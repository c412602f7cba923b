"""Decide what expires, starts and stops by time, and plan exactly these changes.

`calendar` decides what is due, `noticing` finds notices and demands evidence before something ends.
`gpuform expire` and planning call this package.
"""
