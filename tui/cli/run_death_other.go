//go:build unix && !linux && !freebsd

package cli

import "syscall"

// dieWithUs does nothing: the system knows no such bond. A command outlives a run that is killed, without its hold.
func dieWithUs(*syscall.SysProcAttr) {}
