-- inboxd: lock a detached partition
lock table {{relation}} in {{mode}} mode
