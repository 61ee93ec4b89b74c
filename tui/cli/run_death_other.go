//go:build unix && !linux && !freebsd

package cli

import "syscall"

const killedHelp = "A run that is killed by KILL leaves its command running, without the hold."

// dieWithUs does nothing: the system knows no such bond. A command outlives a run that is killed, without its hold.
func dieWithUs(*syscall.SysProcAttr) {}
