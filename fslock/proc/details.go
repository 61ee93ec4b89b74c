package proc

import (
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// maxParents bounds the line of parents, which a pid that is used again while it is followed could bend to a circle.
const maxParents = 16

// describe asks gopsutil for what a person wants to see. What it cannot tell is left zero.
func describe(pid int) (Details, error) {
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		return Details{}, err
	}
	d := Details{Process: named(p)}
	d.Command, _ = p.Cmdline()
	d.User, _ = p.Username()
	if status, err := p.Status(); err == nil && len(status) > 0 {
		d.Status = statusName(status[0])
	}
	d.CPUPercent, _ = p.CPUPercent()
	if m, err := p.MemoryInfo(); err == nil && m != nil {
		d.MemoryRSS = m.RSS
	}
	for range maxParents {
		ppid, err := p.Ppid()
		if err != nil || ppid <= 0 || ppid == p.Pid {
			break
		}
		if p, err = process.NewProcess(ppid); err != nil {
			break
		}
		d.Parents = append(d.Parents, named(p))
	}
	return d, nil
}

func named(p *process.Process) Process {
	name, _ := p.Name()
	n := Process{PID: int(p.Pid), Name: name}
	if ms, err := p.CreateTime(); err == nil && ms > 0 {
		n.Started = time.UnixMilli(ms)
	}
	return n
}

// statusName gives gopsutil's words for a process's state the form that people know from ps.
func statusName(s string) string {
	switch s {
	case process.Running:
		return "running"
	case process.Sleep:
		return "sleeping"
	case process.Blocked:
		return "blocked"
	case process.Stop:
		return "stopped"
	case process.Zombie:
		return "zombie"
	default:
		return s
	}
}
