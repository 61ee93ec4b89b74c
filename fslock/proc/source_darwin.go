package proc

import (
	"time"

	"golang.org/x/sys/unix"
)

// What sysctl says of a process, by <sys/proc.h>.
const (
	statStopped = 4
	statZombie  = 5
	flagTraced  = 0x800
)

// lookAtProcess returns the start in microseconds since the epoch, as records made on macOS have it.
func lookAtProcess(pid int) (Look, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return Look{}, err
	}
	p := &info.Proc
	if int(p.P_pid) != pid {
		return Look{}, ErrNoProcess
	}
	l := Look{
		Process: Process{
			PID:     pid,
			Name:    unix.ByteSliceToString(p.P_comm[:]),
			Started: time.Unix(p.P_starttime.Sec, int64(p.P_starttime.Usec)*1000),
		},
		Parent:   int(info.Eproc.Ppid),
		Start:    uint64(p.P_starttime.Sec)*1e6 + uint64(p.P_starttime.Usec),
		HasStart: p.P_starttime.Sec > 0,
		Zombie:   p.P_stat == statZombie,
	}
	switch {
	case p.P_stat == statStopped && p.P_flag&flagTraced != 0:
		l.Condition = Traced
	case p.P_stat == statStopped:
		l.Condition = Stopped
	}
	return l, nil
}

// absenceProves is true: macOS has no pid namespaces, and kill says ESRCH of nothing but what is not there.
func absenceProves() bool { return true }

func bootTime() time.Time {
	tv, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return time.Time{}
	}
	return time.Unix(tv.Sec, 0)
}
