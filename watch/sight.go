package watch

import (
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// sight is what was found of a process, as far as it can change without any file telling of it: all entries that the
// process holds share one.
type sight struct {
	pid       int // that is looked at
	answer    proc.Liveness
	cause     proc.Cause
	condition proc.Condition
	seen      int // the pid under which the holder was seen
	occupant  int
	under     proc.Under
}

// sightsOf are the processes that an entry names, and its token does.
func sightsOf(en *Entry) []sight {
	if !en.Unseen.IsZero() {
		return nil
	}
	var all []sight
	add := func(s *verdict.Seen, pid int) {
		f := &s.Proc
		if s.Missing || f.Answer == proc.Unknown || f.Cause == proc.Reboot {
			return
		}
		if f.Answer == proc.Alive && f.PID != 0 {
			pid = f.PID
		}
		all = append(all, sight{pid, f.Answer, f.Cause, f.Condition, f.PID, f.Occupant.PID, f.Under})
	}
	if s := en.Seen(); s != nil {
		add(s, recorded(en.Subject))
	}
	if f, ok := en.Subject.(*verdict.LockFacts); ok && f.Token != nil {
		add(&f.Token.Seen, recorded(f.Token))
	}
	return all
}

// agrees reports whether the process is what it was.
func (s sight) agrees(table *proc.Table) bool {
	return table.Glimpse(s.pid).Agrees(&proc.Finding{
		Answer: s.answer, Cause: s.cause, Condition: s.condition, PID: s.seen, Under: s.under,
		Occupant: proc.Process{PID: s.occupant},
	})
}

// recorded is the pid that a record names; 0: none.
func recorded(s verdict.Subject) int {
	switch f := s.(type) {
	case *verdict.LeaseFacts:
		if f.Record != nil {
			return int(f.Record.PID)
		}
	case *verdict.LockFacts:
		return recordedIn(f.Record)
	case *verdict.TokenFacts:
		return recordedIn(f.Record)
	case *verdict.TempFacts:
		return int(f.PID)
	}
	return 0
}

func recordedIn(r *record.Lock) int {
	if r == nil {
		return 0
	}
	return int(r.PID)
}
