//go:build unix

package lease

import "syscall"

// openFlags keep the flock file from being a link, and a FIFO in its place from being waited for.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
