"""Where nodes come from, and when they come and go.

contract      acquire, release, list                       budget        what may be acquired: pure
local         Spark Workers as processes of this machine   provisioning  when to acquire and release: pure
command       the user's own commands
observed      a provider as the controller sees it: asked in a thread of its own, what it says checked
"""
