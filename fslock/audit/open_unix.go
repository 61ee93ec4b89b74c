//go:build unix

package audit

import "syscall"

// openFlags keep a link from being followed, a FIFO from being waited for, and a terminal from becoming ours.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY

const canSyncDir = true
