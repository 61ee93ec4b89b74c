package verdict

import (
	"slices"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

func TestTokenVerdicts(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		f      *TokenFacts
		state  State
		cause  string
		flags  Flag
		exit   int
		blocks bool
		clears time.Duration // from now; 0: not by itself
		says   string
	}{
		"its maker runs": {f: tokenFacts(5 * s), state: Alive, exit: 3, blocks: true, says: "Token alive of pid 4242, 5s old: blocks until that process removes it or dies."},
		"its maker is stopped": {
			f: tokenFacts(5*s, tokenProc(standing(proc.Stopped))), state: Alive, exit: 3, blocks: true,
			says: "Token alive of pid 4242, which is stopped, 5s old: blocks until that process removes it or dies.",
		},
		"it is ours": {f: tokenFacts(5*s, func(f *TokenFacts) { f.Self = true }), state: Alive, flags: Mine, exit: 3, blocks: true, says: "Token alive of pid 4242, 5s old: blocks until that process removes it or dies."},
		"its maker is gone": {
			f: tokenFacts(2*time.Hour+5*s, tokenProc(gone(proc.Gone))), state: Dead, cause: "gone", exit: 4,
			says: "Token dead of pid 4242, 2h 0m old: cleared by the next attempt.",
		},
		"its maker is a zombie": {f: tokenFacts(5*s, tokenProc(gone(proc.Zombie))), state: Dead, cause: "zombie", exit: 4, says: "Token dead of pid 4242, 5s old: cleared by the next attempt."},
		"another machine's": {
			f: tokenFacts(72*time.Hour, func(f *TokenFacts) { f.Record.Hostname, f.Proc = "old-host", away() }), state: Unknown, exit: 5, blocks: true,
			says: "Token unknown of pid 4242 on old-host, 3d 0h old: blocks for ever; a person must decide (another machine).",
		},
		"from another pid namespace": {
			f: tokenFacts(5*s, tokenProc(hidden("another pid namespace"))), state: Unknown, exit: 5, blocks: true,
			says: "Token unknown of pid 4242 on vm, 5s old: blocks for ever; a person must decide (another pid namespace).",
		},
		"from the future": {
			f: tokenFacts(-time.Hour), state: Alive, flags: Clock, exit: 3, blocks: true,
			says: "Token alive of pid 4242, 0s old: blocks until that process removes it or dies.",
		},
		"torn": {f: tokenFacts(20*s, badToken(torn)), state: Malformed, cause: "malformed", exit: 7, blocks: true, clears: 40 * s, says: "Token malformed, honoured for 40s more."},
		"malformed, to the limit": {
			f: tokenFacts(60*s, badToken(garbage)), state: Malformed, cause: "malformed", exit: 7, blocks: true, clears: 1, says: "Token malformed, honoured for 0s more.",
		},
		"malformed, over the limit": {
			f: tokenFacts(60*s+1, badToken(garbage)), state: Malformed, cause: "malformed", exit: 7,
			says: "Token malformed, over a minute old: cleared by the next attempt.",
		},
		"malformed, from the future": {
			f: tokenFacts(-time.Hour, badToken(garbage)), state: Malformed, cause: "malformed", exit: 7, blocks: true, clears: 60 * s,
			says: "Token malformed, honoured for 60s more.",
		},
		"malformed, from the future, watched for a minute": {
			f: tokenFacts(-time.Hour, badToken(garbage), func(f *TokenFacts) { f.Still = now.Add(-61 * s) }), state: Malformed, cause: "malformed", exit: 7,
			says: "Token malformed, over a minute old: cleared by the next attempt.",
		},
		"a symlink":     {f: tokenFacts(time.Hour, badToken(symlink)), state: Unknown, cause: "not-regular", exit: 5, blocks: true, says: "Token unreadable (a symlink): blocks until a person acts."},
		"denied":        {f: tokenFacts(time.Hour, badToken(denied)), state: Unknown, cause: "denied", exit: 5, blocks: true, says: "Token unreadable (owned by uid 0, mode 0600): blocks until a person acts."},
		"gone by now":   {f: tokenFacts(0, func(f *TokenFacts) { nothing(&f.Seen); f.Record = nil }), state: Unknown, exit: 5, says: "Token gone."},
		"not looked at": {f: &TokenFacts{}, state: Unknown, flags: IsBlocked, exit: 5, blocks: true, says: "It was not looked at."},
	} {
		t.Run(name, func(t *testing.T) {
			v := tc.f.Judge(now)
			if v.State != tc.state || v.Cause != tc.cause || v.Flags != tc.flags || v.ExitCode() != tc.exit {
				t.Errorf("got %v (%s) %v, exit %d", v.State, v.Cause, v.Flags.Strings(), v.ExitCode())
			}
			if v.Sentence != tc.says {
				t.Errorf("says %q,\nwant %q", v.Sentence, tc.says)
			}
			if got := tc.f.Blocks(now); got != tc.blocks {
				t.Errorf("blocks: %v", got)
			}
			tok := tc.f.Token(now)
			if tok.State != tc.state || tok.Path != tc.f.Path {
				t.Errorf("told beside its lock as %v", tok)
			}
			clears := time.Duration(0)
			if !tok.Clears.IsZero() {
				clears = max(1, tok.Clears.Sub(now))
			}
			if clears != tc.clears {
				t.Errorf("clears in %v, want %v", clears, tc.clears)
			}
			if f := tc.f; f.Record != nil && (tok.PID != holderPID || tok.Host != f.Record.Hostname || !tok.Created.Equal(MilliU(f.Record.CreatedAtMS))) {
				t.Errorf("told of another maker: %+v", tok)
			}
			if len(v.Evidence) == 0 {
				t.Error("no evidence")
			}
		})
	}
}

func TestTempVerdicts(t *testing.T) {
	temp := func(pid uint32, p proc.Finding, problem *record.Error) *TempFacts {
		f := &TempFacts{Seen: seen("/aft/index/k/.cache.lock.tmp.4242.1.0", time.Hour), PID: pid}
		f.Proc, f.Problem = p, problem
		return f
	}
	for name, tc := range map[string]struct {
		f     *TempFacts
		state State
		cause string
		says  string
	}{
		"its process is gone":              {temp(4242, gone(proc.Gone), nil), Litter, "gone", "Left over by pid 4242, which is gone; removed by a sweep on request only."},
		"its process is gone, unreadable":  {temp(4242, gone(proc.Gone), &torn), Litter, "gone", "Left over by pid 4242, which is gone; removed by a sweep on request only."},
		"its process runs":                 {temp(4242, running(), nil), InUse, "", "In use by pid 4242, which waits for the lock or is writing it."},
		"its process cannot be judged":     {temp(4242, hidden("another pid namespace"), nil), InUse, "", "Of pid 4242; cannot tell from here whether that runs (another pid namespace)."},
		"no process is named":              {temp(0, proc.Finding{}, &torn), InUse, "", ".cache.lock.tmp.4242.1.0 names no process; it counts as in use."},
		"pid 0 that something called dead": {temp(0, gone(proc.Gone), nil), InUse, "", ".cache.lock.tmp.4242.1.0 names no process; it counts as in use."},
		"it is gone by now":                {&TempFacts{Seen: Seen{Path: "/x", Missing: true, Look: now}}, InUse, "", "It is gone."},
	} {
		t.Run(name, func(t *testing.T) {
			v := tc.f.Judge(now)
			if v.State != tc.state || v.Cause != tc.cause || v.Sentence != tc.says {
				t.Errorf("got %v (%s): %s", v.State, v.Cause, v.Sentence)
			}
			if v.ExitCode() != 0 || len(v.Evidence) == 0 || !v.Changes.IsZero() {
				t.Errorf("exit %d, %d checks, changes %v", v.ExitCode(), len(v.Evidence), v.Changes)
			}
		})
	}
}

func TestHolderIsWhomTheRecordNames(t *testing.T) {
	l := leaseFacts(3 * time.Second)
	l.Record.SessionID = new("sess-42")
	h := l.Holder()
	if h.PID != holderPID || h.Host != "vm" || h.OwnerBootID != "owner-a" || h.BlockID != "block-1" || *h.SessionID != "sess-42" ||
		h.Channel != "stable" || h.Version != "0.57.4" || h.Epoch != 5 || h.ClaimID != "claim-1" || h.WriterEpoch != "" ||
		!h.Acquired.Equal(now.Add(-3*time.Minute)) || !h.Renewed.Equal(now.Add(-3*time.Second)) {
		t.Errorf("lease: %+v", h)
	}
	h = lockFacts(3 * time.Second).Holder()
	if h.PID != holderPID || h.Host != "vm" || h.WriterEpoch != "4242-1" ||
		!h.Acquired.Equal(now.Add(-3*time.Minute)) || !h.Renewed.Equal(now.Add(-3*time.Second)) {
		t.Errorf("lock: %+v", h)
	}
	if h := tokenFacts(0).Holder(); h.WriterEpoch != "reclaim-4242-1" {
		t.Errorf("token: %+v", h)
	}
	if h := (&TempFacts{PID: 7}).Holder(); h.PID != 7 || h.Host != "" {
		t.Errorf("temp by its name: %+v", h)
	}
	if h := (&TempFacts{PID: 7, Record: lockFacts(0).Record}).Holder(); h.PID != holderPID {
		t.Errorf("temp by its record: %+v", h)
	}
	for _, s := range []Subject{&LeaseFacts{}, &LockFacts{}, &TokenFacts{}, &TempFacts{}} {
		if h := s.Holder(); h != nil {
			t.Errorf("%T without a record: %+v", s, h)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for state, want := range map[State][2]int{ // not blocked, blocked
		Unknown: {5, 5}, Unreadable: {7, 7}, Dead: {4, 8}, Expired: {4, 8}, Stopped: {3, 3}, Late: {3, 3}, Remote: {3, 3},
		Live: {3, 3}, Free: {0, 8}, Alive: {3, 3}, Malformed: {7, 7}, InUse: {0, 0}, Litter: {0, 0},
	} {
		for i, flags := range []Flag{Clock | LongHeld | Legacy | EpochFlag | StoppedFlag | Mine, IsBlocked} {
			if got := (Verdict{State: state, Flags: flags}).ExitCode(); got != want[i] {
				t.Errorf("%v %v: exit %d, want %d", state, flags.Strings(), got, want[i])
			}
		}
	}
	order := []int{7, 8, 5, 4, 3, 0}
	for i, a := range order {
		for j, b := range order {
			if got := Worse(a, b); got != order[min(i, j)] {
				t.Errorf("the worse of %d and %d: %d", a, b, got)
			}
		}
	}
}

func TestNamesOfStatesAndFlags(t *testing.T) {
	var states []string
	for s := Unknown; s <= Litter; s++ {
		states = append(states, s.String())
	}
	if want := []string{
		"unknown", "unreadable", "dead", "expired", "stopped", "late", "remote", "live", "free", "alive", "malformed", "in-use", "litter",
	}; !slices.Equal(states, want) {
		t.Errorf("states %q", states)
	}
	var whens []string
	for w := Blocked; w <= Now; w++ {
		whens = append(whens, w.String())
	}
	if want := []string{"blocked", "event", "at", "now"}; !slices.Equal(whens, want) {
		t.Errorf("whens %q", whens)
	}
	all := Mine | IsBlocked | Clock | LongHeld | Legacy | EpochFlag | StoppedFlag
	if want := []string{"mine", "blocked", "clock", "long-held", "legacy", "epoch", "stopped"}; !slices.Equal(all.Strings(), want) {
		t.Errorf("flags %q", all.Strings())
	}
	if f := Flag(0).Strings(); f == nil || len(f) != 0 {
		t.Errorf("no flags: %#v", f)
	}
	if !all.Has(Mine|Clock) || (Mine | Clock).Has(Mine|Legacy) || !Mine.Has(0) {
		t.Error("Has must ask for all")
	}
}
