package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/fslock"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/sweep"
)

// How soon whoever waits for a lock is told what for, and how often it is looked at whether that is still so.
const (
	noticeSoon  = 300 * time.Millisecond
	noticeEvery = time.Second
)

// answerLimit is how long the system may take to say why a hold is over before that is told without a reason.
const answerLimit = time.Second

// acquiring is `acquire`.
type acquiring struct {
	*app
	holdFor span
}

func (a *app) acquireCommand() *cobra.Command {
	c := &acquiring{app: a}
	cmd := &cobra.Command{
		Use:   "acquire PATH [--for DURATION]",
		Short: "Hold a lock in the foreground",
		Long: "Waits for the lock at PATH, then holds it, with a heartbeat every five seconds, until it is told to stop by\n" +
			"TERM or INT (exit 0), or it is lost (exit 6). With --timeout it waits that long at most (exit 124); with\n" +
			"--timeout 0 it tries once (exit 3 if it is held, 7 if it cannot be read, 8 if a token blocks it). A token, a temp\n" +
			"file and what belongs to a lease are no locks (exit 2).",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usage("the PATH of one lock is wanted")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().Var(&c.holdFor, "for", "hold it that long")
	return cmd
}

func (c *acquiring) run(ctx context.Context, arg string) error {
	if c.holdFor.given && c.holdFor.d == 0 {
		return usage("--for 0 would hold nothing")
	}
	if c.readOnly {
		return refused("acquire", arg)
	}
	path, err := absolute(arg)
	if err != nil {
		return failed(err)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	lock, err := c.acquire(ctx, path)
	if err != nil {
		c.tellRefusal(err)
		return err
	}
	return c.keep(ctx, lock)
}

// acquire waits for the lock for as long as --timeout lets it, and says what it waits for.
func (a *app) acquire(ctx context.Context, path string) (*fslock.Lock, error) {
	if err := noLock(path); err != nil {
		return nil, err
	}
	locker := &fslock.Locker{ReadOnly: a.readOnly, Log: a.log()}
	if a.isInside() {
		info := locker.Inspect(path)
		if h := info.Facts.Holder(); h != nil && a.insideOf(h.WriterEpoch) {
			e := &fslock.ConflictError{Op: "acquire", Path: path, Holder: h, Verdict: info.Verdict, Err: fslock.ErrHeld}
			return nil, &problem{code: codeHeld, err: &refusal{fmt.Sprintf("lock %s is %s", path, heldAround), e}}
		}
	}
	if a.timeout.given && a.timeout.d == 0 {
		lock, err := locker.TryAcquire(path)
		if err != nil {
			return nil, a.lockRefusal(err)
		}
		return lock, nil
	}
	limited, cancel := a.bounded(ctx)
	defer cancel()
	waiting, got := context.WithCancel(limited)
	told := make(chan struct{})
	go func() {
		defer close(told)
		a.tellWaiting(waiting, locker, path)
	}()
	lock, err := locker.Acquire(limited, path)
	got()
	<-told
	switch {
	case err == nil:
		return lock, nil
	case ctx.Err() != nil:
		return nil, endedBy(ctx)
	}
	p := a.lockRefusal(err)
	if limited.Err() != nil && (errors.Is(err, fslock.ErrHeld) || errors.Is(err, fslock.ErrBlocked) || errors.Is(err, limited.Err())) {
		p.code = codeTimedOut
		p.err = fmt.Errorf("timed out after %s: %w", &a.timeout, p.err)
	}
	return nil, p
}

// noLock refuses a path whose name is that of something else, and says how to come to what is meant.
func noLock(path string) error {
	dir, name := filepath.Split(path)
	p := &problem{code: codeUsage}
	if id, ok := sweep.LeaseOf(path); ok {
		p.err = fmt.Errorf("%s belongs to the lease %s, and is no lock", path, id)
		p.hint = "`" + verdict.Command("claim", id, "--hold", "--root "+verdict.Quote(filepath.Clean(dir))) + "` holds the lease."
		return p
	}
	kind, lock := "", filepath.Base(sweep.LockOf(path))
	if of, token := record.ParseToken(name); token {
		kind, lock = "reclaim token", of
	} else if of, _, temp := record.ParseTemp(name); temp {
		kind, lock = "temp file", of
	} else if lock != "." {
		kind = "temp file"
	}
	if strings.HasPrefix(name, ".registry-tmp-") {
		return usage("%s is the name of a lease's temp file, and no lock", path)
	}
	if kind == "" {
		return nil
	}
	p.err = fmt.Errorf("%s is the name of a %s, and no lock", path, kind)
	p.hint = "Its lock is " + dir + lock + ": `" + verdict.Command("acquire", dir+lock) + "`."
	return p
}

// tellWaiting looks at the lock that is waited for until ctx is done.
func (a *app) tellWaiting(ctx context.Context, locker *fslock.Locker, path string) {
	n := notice{app: a, what: "lock " + path}
	timer := time.NewTimer(noticeSoon)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if info := locker.Inspect(path); ctx.Err() == nil {
			n.tell(&info.Verdict, info.Facts.Holder())
		}
		timer.Reset(noticeEvery)
	}
}

// notice tells on standard error what is waited for: once, and again when the state of that is another.
type notice struct {
	*app
	what string
	said string
}

func (n *notice) tell(v *verdict.Verdict, h *verdict.Holder) {
	blocked := v.Claimable.When == verdict.Blocked
	is := fmt.Sprint(v.State, blocked)
	if is == n.said || v.Claimable.When == verdict.Now {
		return // what is to be had at once is not waited for
	}
	n.said = is
	sentence := v.Sentence
	if h != nil && !strings.Contains(sentence, fmt.Sprint("pid ", h.PID)) {
		sentence = fmt.Sprintf("pid %d on %s has it. %s", h.PID, h.Host, sentence)
	}
	st := n.style()
	fmt.Fprintf(n.Stderr, "holdfast: waiting for %s: %s\n", st.Safe(n.what), st.Safe(shortener(st, h).Replace(sentence)))
}

// lockRefusal says why a lock was not got, or is not held any more, with the code that goes with it.
func (a *app) lockRefusal(err error) *problem {
	p := &problem{code: codeFailed, err: err}
	conflict, isConflict := errors.AsType[*fslock.ConflictError](err)
	switch {
	case errors.Is(err, fslock.ErrReadOnly), errors.Is(err, fs.ErrInvalid):
		p.code = codeUsage
	case errors.Is(err, fslock.ErrLost):
		p.code = codeLost
	case errors.Is(err, fslock.ErrBlocked):
		p.code = codeBlocked
	case isUnseen(err), errors.Is(err, fslock.ErrUnreadable), isConflict && conflict.Verdict.State == verdict.Unreadable:
		p.code = codeUnreadable
	case errors.Is(err, fslock.ErrHeld):
		p.code = codeHeld
	}
	if isUnseen(err) {
		p.hint = whoMayRead
	}
	if isConflict {
		c := *conflict
		c.Ended = nil // that it ran out of time is told once, with the time
		p.err = &refusal{strings.TrimSuffix(shortener(a.style(), c.Holder).Replace(c.Error()), "."), err}
		if p.code != codeLost {
			p.hint = "`" + verdict.Command("why", c.Path) + "` tells more."
		}
	}
	return p
}

// isUnseen reports whether err says that what is there may not be read.
func isUnseen(err error) bool {
	e, ok := errors.AsType[*record.Error](err)
	return ok && e.Problem == record.Denied
}

// keep holds the lock until it is told to stop, or loses it.
func (c *acquiring) keep(ctx context.Context, lock *fslock.Lock) error {
	if err := c.tellLock("held", lock, nil); err != nil {
		// Nobody knows that it is held: so it is not.
		return errors.Join(err, lock.Release())
	}
	hold := ctx
	if c.holdFor.given {
		var cancel context.CancelFunc
		hold, cancel = context.WithTimeout(ctx, c.holdFor.d)
		defer cancel()
	}
	select {
	case <-lock.Lost():
		return c.lockLost(lock)
	case <-hold.Done():
	}
	// The release of a lost lock is no error, and nobody may have looked for some seconds.
	if errors.Is(inTime(lock.Verify), fslock.ErrLost) {
		return c.lockLost(lock)
	}
	if err := lock.Release(); err != nil {
		return c.lockRefusal(err)
	}
	_ = c.tellLock("released", lock, nil) // it is so, whoever reads it
	if sig, ok := errors.AsType[*signalError](context.Cause(ctx)); ok && !sig.clean() {
		return exit(sig.code())
	}
	return nil
}

// lockLost tells that the lock is lost, and to whom, and ends its heartbeat.
func (c *acquiring) lockLost(lock *fslock.Lock) error {
	err := whyLost(verification(lock), fslock.ErrLost)
	_ = c.tellLock("lost", lock, err) // the exit code tells it to whoever does not read
	_ = lock.Release()                // it joins the heartbeat, and can only say the same
	return c.lockRefusal(named("acquire", err))
}

// named makes err that of what was done: it was verified for that.
func named(op string, err error) error {
	if e, ok := errors.AsType[*fslock.ConflictError](err); ok {
		e.Op = op
	} else if e, ok := errors.AsType[*lease.ConflictError](err); ok {
		e.Op = op
	}
	return err
}

// verification verifies the lock, and says what has become of one whose loss was found before.
func verification(lock *fslock.Lock) func() error {
	return func() error {
		err := lock.Verify()
		e, ok := errors.AsType[*fslock.ConflictError](err)
		if !ok || !errors.Is(err, fslock.ErrLost) || e.Verdict.Sentence != "" {
			return err
		}
		facts := (&fslock.Locker{}).Inspect(lock.Path()).Facts
		switch {
		case facts.Missing:
			e.Verdict.Sentence = "Its file is gone."
		case facts.Record != nil:
			e.Holder = facts.Holder()
			e.Verdict.Sentence = fmt.Sprintf("It is that of pid %d on %s now.", e.Holder.PID, e.Holder.Host)
		}
		return err
	}
}

// whyLost asks for the reason of a loss that was told; the system may not answer.
func whyLost(verify func() error, lost error) error {
	if err := inTime(verify); errors.Is(err, lost) {
		return err
	}
	return fmt.Errorf("%w: it could not be renewed in time", lost)
}

// inTime is what call returns, or errNoAnswer.
func inTime(call func() error) error {
	answer := make(chan error, 1)
	go func() { answer <- call() }()
	timer := time.NewTimer(answerLimit)
	defer timer.Stop()
	select {
	case err := <-answer:
		return err
	case <-timer.C:
		return errNoAnswer
	}
}

var errNoAnswer = errors.New("the system does not answer")

// tellLock prints what happened to the lock, one line.
func (a *app) tellLock(what string, lock *fslock.Lock, because error) error {
	e := event{
		Schema: schema, Event: what, Path: lock.Path(), PathB64: inexact(lock.Path()), WriterEpoch: lock.WriterEpoch(),
	}
	e.explain(because)
	return a.print(func(w io.Writer) {
		st := a.style()
		switch {
		case a.json:
			writeJSON(w, e)
		case what == "held":
			fmt.Fprintf(w, "held %s: writer epoch %s\n", st.Safe(e.Path), st.Safe(e.WriterEpoch))
		default:
			fmt.Fprintf(w, "%s %s\n", what, st.Safe(e.Path))
		}
	})
}
