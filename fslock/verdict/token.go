package verdict

import (
	"fmt"
	"path/filepath"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// Judge says what is so with the token at now. Claimable is left at its zero value: nobody claims a token.
func (f *TokenFacts) Judge(now time.Time) Verdict {
	v := f.Glance(now)
	if f.Record != nil || f.Problem != nil || f.Missing {
		v.Evidence = seenChecks(&f.Seen, now)
	}
	return v
}

// Glance is Judge without Evidence, which is most of it and is read of one entry at a time: for whoever keeps many.
func (f *TokenFacts) Glance(now time.Time) Verdict {
	if f.Record == nil && f.Problem == nil && !f.Missing {
		return notLookedAt()
	}
	v := Verdict{State: f.state(), Sentence: upper(f.sentence(now)) + "."}
	switch {
	case f.Problem != nil:
		v.Cause = string(f.Problem.Problem)
	case v.State == Dead:
		v.Cause = string(f.Proc.Cause)
	}
	if f.malformed() && f.Blocks(now) {
		v.Changes = f.clears().Add(1)
	}
	if f.Self {
		v.Flags |= Mine
	}
	if r := f.Record; r != nil && wrongClock(now, MilliU(r.CreatedAtMS), MilliU(r.HeartbeatAtMS)) != "" {
		v.Flags |= Clock
	}
	return v
}

// Token is what is known about it, as it is told beside its lock.
func (f *TokenFacts) Token(now time.Time) Token {
	t := Token{Path: f.Path, State: f.state()}
	if f.Record != nil {
		t.PID, t.Host, t.Created = f.Record.PID, f.Record.Hostname, MilliU(f.Record.CreatedAtMS)
	}
	if f.malformed() && f.Blocks(now) {
		t.Clears = f.clears()
	}
	return t
}

// Blocks reports whether whoever would remove the lock must wait for the token.
func (f *TokenFacts) Blocks(now time.Time) bool {
	switch f.state() {
	case Dead:
		return false
	case Malformed:
		return !now.After(f.clears())
	default:
		return !f.Missing
	}
}

func (f *TokenFacts) malformed() bool {
	return f.Problem != nil && f.Problem.Problem == record.Malformed
}

// clears is when a malformed token stops to be honoured.
func (f *TokenFacts) clears() time.Time { return f.still(f.File.ModTime).Add(TokenMalformed) }

func (f *TokenFacts) state() State {
	switch {
	case f.malformed():
		return Malformed
	case f.Problem != nil, f.Missing:
		return Unknown
	case f.Proc.Answer == proc.Alive:
		return Alive
	case f.Proc.Answer == proc.Dead:
		return Dead
	default:
		return Unknown
	}
}

// next is what helps against a token that blocks: its maker goes on, or a person looks at the plan for its removal.
func (f *TokenFacts) next() []string {
	switch {
	case f == nil || f.Record == nil:
		return nil
	case f.state() == Alive && f.Proc.Condition != proc.Running:
		return contNext(f.Proc)
	case f.state() == Unknown:
		return []string{"holdfast break " + Quote(f.Path)}
	default:
		return nil
	}
}

// name tells the token by who made it; the host is told where the pid is not one of ours.
func (f *TokenFacts) name() string {
	switch {
	case f.malformed():
		return "a malformed token"
	case f.Record == nil:
		return "an unreadable token"
	case f.Proc.Machine == proc.Elsewhere:
		return "a token of " + hostName(f.Record.Hostname)
	case f.Proc.Answer == proc.Unknown:
		return fmt.Sprintf("a token of pid %d on %s", f.Record.PID, hostName(f.Record.Hostname))
	default:
		return fmt.Sprintf("a token of pid %d", f.Record.PID)
	}
}

func (f *TokenFacts) sentence(now time.Time) string {
	switch {
	case f.malformed() && f.Blocks(now):
		return fmt.Sprintf("token malformed, honoured for %s more", left(f.clears(), now))
	case f.malformed():
		return "token malformed, over a minute old: cleared by the next attempt"
	case f.Problem != nil:
		return fmt.Sprintf("token unreadable (%s): blocks until a person acts", f.Problem.Detail)
	case f.Missing:
		return "token gone"
	case f.Record == nil:
		return "token not looked at: it counts as blocking"
	}
	age := ago(Age(MilliU(f.Record.CreatedAtMS), now))
	switch f.state() {
	case Dead:
		return fmt.Sprintf("token dead of pid %d, %s old: cleared by the next attempt", f.Record.PID, age)
	case Alive:
		stopped := ""
		if f.Proc.Condition != proc.Running {
			stopped = ", which is " + conditionWord(f.Proc.Condition)
		}
		return fmt.Sprintf("token alive of pid %d%s, %s old: blocks until that process removes it or dies", f.Record.PID, stopped, age)
	default:
		return fmt.Sprintf("token unknown of pid %d on %s, %s old: blocks for ever; a person must decide (%s)",
			f.Record.PID, hostName(f.Record.Hostname), age, why(f.Proc))
	}
}

// Judge says what is so with the temp at now: litter only when its process is proven dead.
func (f *TempFacts) Judge(now time.Time) Verdict {
	v := f.Glance(now)
	v.Evidence = seenChecks(&f.Seen, now)
	return v
}

// Glance is Judge without Evidence. Time changes nothing of it.
func (f *TempFacts) Glance(time.Time) Verdict {
	v := Verdict{State: InUse}
	name := filepath.Base(f.Path)
	switch {
	case f.Problem != nil && f.Problem.Problem != record.Malformed:
		v.Cause = string(f.Problem.Problem)
		v.Sentence = unreadableSentence(f.Problem) + " No sweep touches it."
	case f.PID != 0 && f.Proc.Answer == proc.Dead:
		v.State, v.Cause = Litter, string(f.Proc.Cause)
		v.Sentence = fmt.Sprintf("Left over by pid %d, which is gone; removed by a sweep on request only.", f.PID)
	case f.PID != 0 && f.Proc.Answer == proc.Alive:
		v.Sentence = fmt.Sprintf("In use by pid %d, which waits for the lock or is writing it.", f.PID)
	case f.Missing:
		v.Sentence = "It is gone."
	case f.PID != 0:
		v.Sentence = fmt.Sprintf("Of pid %d; cannot tell from here whether that runs (%s).", f.PID, why(f.Proc))
	default:
		v.Sentence = fmt.Sprintf("%s names no process; it counts as in use.", name)
	}
	return v
}
