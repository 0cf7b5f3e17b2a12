"""Killing the processes that run a component, at every point, and looking at what comes of it.

`crash_points` is the one mechanism: wrappers of the store and of the effects, at which a process
gets SIGKILL. A `Lab` runs a script of invocations undisturbed, then again for each point in a
process that dies there and in others that recover, and judges each of these cases by what its
processes have reported (`verdict`) and by what an undisturbed run came to (`account`).
"""
