//go:build linux || freebsd

package cli

import "syscall"

// dieWithUs has the system kill the command when we are gone. It does not for one that changes its user, and not for
// what the command started.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
