package proc

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func lookAtProcess(pid int) (Look, error) { return lookByGopsutil(pid) }

// absenceProves is false in a jail and where policy lets kill say ESRCH of other people's processes.
func absenceProves() bool {
	for name, want := range map[string]uint32{
		"security.jail.jailed":        0,
		"security.bsd.see_other_uids": 1,
		"security.bsd.see_other_gids": 1,
		"security.bsd.see_jail_proc":  1,
	} {
		if name != "security.jail.jailed" && os.Geteuid() == 0 {
			continue
		}
		if value, err := unix.SysctlUint32(name); err != nil || value != want {
			return false
		}
	}
	return true
}

func bootTime() time.Time {
	tv, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return time.Time{}
	}
	return time.Unix(int64(tv.Sec), 0)
}
