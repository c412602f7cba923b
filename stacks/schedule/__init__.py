"""Decide what expires, starts and stops by time, and plan exactly these changes.

`calendar` decides what is due and lists what is to come, `noticing` finds notices and demands
evidence before something ends. `gpuform expire` and planning call this package.
"""
