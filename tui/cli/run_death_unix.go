//go:build linux || freebsd

package cli

import "syscall"

const killedHelp = "A run that is killed by KILL has its command killed with it, but not what that has started: this runs on\n" +
	"without the hold."

// dieWithUs has the system kill the command when we are gone. It does not for one that changes its user, and not for
// what the command started.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
