package proc

// Glimpse is what of a process changes without any file telling of it.
type Glimpse struct {
	Exists    bool      // somebody has the pid
	Seen      bool      // the rest is known
	Start     uint64    // as in Look; another one is another process
	Exited    bool      // a zombie of which nothing runs any more
	Condition Condition // of one that has not
}

// Glimpse looks at whoever has the pid here. It is no verdict on a record: it tells whether Judge, asked anew, would
// see anything else than before, for a fraction of the cost.
func (t *Table) Glimpse(pid int) Glimpse {
	if pid <= 0 || pid > maxPID {
		return Glimpse{}
	}
	s := t.look(pid)
	g := Glimpse{Exists: s.exists, Seen: s.seen, Start: s.Start, Exited: s.seen && s.exited(), Condition: s.Condition}
	if g.Seen && !g.Exited && g.Condition == Running && t.frozen(pid) {
		g.Condition = Frozen
	}
	return g
}

// Agrees reports whether a finding is still so, as far as a glimpse tells of a process that lives at the pid under which
// it was seen, of a dead one at the recorded pid.
func (g Glimpse) Agrees(f *Finding) bool {
	same := !f.Under.Readable || !g.Seen || f.Under.StartTicks == g.Start
	switch {
	case f.Answer == Alive:
		same = same || f.PID != f.Occupant.PID // what stands under the recorded pid is somebody else
		return g.Exists && !g.Exited && same && (!g.Seen || g.Condition == f.Condition)
	case f.Answer == Dead && f.Cause == Zombie:
		return g.Exited
	case f.Answer == Dead:
		return same && g.Exists == (f.Under.Exists || f.Occupant.PID != 0)
	default:
		return true
	}
}
