package proc

import (
	"strings"
	"time"
)

// question is all of an identity that a finding depends on, but for when its process was last heard of: many files name
// the same process, and each renewal moves that.
type question struct {
	pid                                             uint32
	host, bootID                                    string
	ticks, startUnix, pidNS, pidfdIno, timeNS       uint64
	hasTicks, zeroUnknown, brief                    bool
	localFS, noBeat, noFile, beatBefore, fileBefore bool // for a record of another boot only
}

// judgement is a finding that serves every record of the same question whose last beat is not before since.
type judgement struct {
	f     Finding
	since time.Time
}

func (t *Table) question(id *Identity) question {
	k := question{
		pid: id.PID, host: id.Host, bootID: id.BootID, startUnix: id.StartUnix, pidNS: id.PIDNS, pidfdIno: id.PidfdIno,
		timeNS: id.TimeNS, zeroUnknown: id.ZeroUnknown, brief: id.Brief,
	}
	if id.StartTicks != nil {
		k.ticks, k.hasTicks = *id.StartTicks, true
	}
	if id.BootID != "" && strings.TrimSpace(id.BootID) != t.Self().BootID {
		boot := t.BootTime()
		k.localFS, k.noBeat, k.noFile = id.LocalFS, id.LastBeat.IsZero(), id.ModTime.IsZero()
		k.beatBefore, k.fileBefore = id.LastBeat.Before(boot), id.ModTime.Before(boot)
	}
	return k
}

// judge gives the finding of a record that says the same, or else judges.
func (m *memo) judge(t *Table, id Identity) Finding {
	k := t.question(&id)
	m.mu.Lock()
	old, known := m.judged[k]
	m.mu.Unlock()
	if known && !id.LastBeat.Before(old.since) {
		return old.f
	}
	q := t.inquire(id)
	if n := len(q.f.Checks); n < cap(q.f.Checks) {
		// Whoever looks at many files keeps what was found.
		q.f.Checks = append(make([]Check, 0, n), q.f.Checks...)
	}
	if !q.alone {
		m.mu.Lock()
		m.judged[k] = judgement{f: q.f, since: q.since}
		m.mu.Unlock()
	}
	return q.f
}
