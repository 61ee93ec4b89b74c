//go:build !linux

package proc

import (
	"errors"
	"os"
	"os/user"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

var errUnsupported = errors.New("not on this platform")

// other is this machine where there is no /proc of Linux's kind: no boot id, no namespaces, no pidfds. It is not
// changed after localSource.
type other struct{ self Self }

func localSource() Source {
	o := &other{Self{PID: os.Getpid(), UID: os.Getuid(), InitialNS: absenceProves()}}
	if u, err := user.Current(); err == nil {
		o.self.User = u.Username
	}
	if l, err := lookAtProcess(o.self.PID); err == nil {
		if l.HasStart {
			o.self.StartTicks = l.Start
		}
		if !l.Started.IsZero() {
			o.self.StartUnix = uint64(max(0, l.Started.Unix()))
		}
	}
	return o
}

func (o *other) Self() Self {
	self := o.self
	self.Host, _ = os.Hostname()
	return self
}

func (o *other) BootTime() time.Time                  { return bootTime() }
func (o *other) Exists(pid int) bool                  { return pid > 0 && pid <= maxPID && exists(pid) }
func (o *other) Look(pid int) (Look, error)           { return lookAtProcess(pid) }
func (o *other) Frozen(int) bool                      { return false }
func (o *other) Namespaces(int) (uint64, uint64)      { return 0, 0 }
func (o *other) Pidfd(uint64) (int, error)            { return 0, errUnsupported }
func (o *other) Nested() (map[int][]int, string)      { return nil, "" }
func (o *other) Locks() ([]FileLock, error)           { return nil, errUnsupported }
func (o *other) OpenFiles() ([]OpenFile, []int, bool) { return nil, nil, false }
func (o *other) SameFile(OpenFile, uint64, uint64) bool {
	return false
}

func (o *other) Describe(pid int) (Details, error) { return describe(pid) }

// lookByGopsutil looks at a process for people and for its start time in seconds. That is no start in the unit of
// any record, so HasStart stays false.
func lookByGopsutil(pid int) (Look, error) {
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		return Look{}, err
	}
	l := Look{Process: named(p)}
	if ppid, err := p.Ppid(); err == nil {
		l.Parent = int(ppid)
	}
	if status, err := p.Status(); err == nil && len(status) > 0 {
		l.Zombie = status[0] == process.Zombie
		if status[0] == process.Stop {
			l.Condition = Stopped
		}
	}
	return l, nil
}
