package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/fslock"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/tui/text"
)

// event is one line of what happens to a lease or a lock, for programs.
type event struct {
	Schema      int            `json:"schema"`
	Event       string         `json:"event"`        // held, lost, released, refused, verified
	ID          string         `json:"id,omitempty"` // leases only, likewise the next two
	Epoch       uint64         `json:"epoch,omitempty"`
	ClaimID     string         `json:"claim_id,omitempty"`
	Path        string         `json:"path"`
	PathB64     string         `json:"path_b64,omitempty"`
	WriterEpoch string         `json:"writer_epoch,omitempty"` // locks only
	State       string         `json:"state,omitempty"`        // refused and lost only, likewise what follows
	Sentence    string         `json:"sentence,omitempty"`
	Claimable   *jsonClaimable `json:"claimable,omitempty"`
	Holder      *jsonHolder    `json:"holder,omitempty"`
}

const (
	// poll is how often a wait looks again.
	poll = 200 * time.Millisecond
	// claimPoll is how often, on average, a claim that may wait asks again. Beside those who ask more often, who asks rarely
	// gets nothing.
	claimPoll = 50 * time.Millisecond
)

// claiming is `claim`.
type claiming struct {
	*app
	hold     bool
	holdFor  span
	observe  span
	claimant lease.Claimant
}

func (a *app) claimCommand() *cobra.Command {
	c := &claiming{app: a}
	cmd := &cobra.Command{
		Use:   "claim ID (--hold | --for DURATION)",
		Short: "Hold a lease in the foreground, renewing it",
		Long: "Claims the lease of an agent and holds it, renewing it every five seconds, until it is told to stop by\n" +
			"TERM or INT (exit 0), or it is lost (exit 6). Without --timeout it tries once (exit 3 if it is held, 7 if it cannot\n" +
			"be read, 8 if its epoch counter or flock file is damaged, or somebody is inside); with it, it asks again while it\n" +
			"is held, until that time is over (exit 124). A claim lives as long as its process: a claim that returned at once\n" +
			"would be dead at once, so one of --hold and --for must be given.",
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&c.hold, "hold", false, "hold it until a signal")
	flags.Var(&c.holdFor, "for", "hold it that long")
	flags.Var(&c.observe, "observe", observeUsage)
	c.claimantFlags(cmd)
	return cmd
}

func (c *claiming) claimantFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.claimant.Owner, "owner", "", "owner id of the claimant (default: unique)")
	flags.StringVar(&c.claimant.Block, "block", "", "block id of the claimant (default: unique)")
	flags.StringVar(&c.claimant.Session, "session", "", "session id of the claimant (default: none)")
	flags.StringVar(&c.claimant.Channel, "channel", "holdfast", "channel that is told to whoever is refused")
}

func oneID(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("an ID is wanted, not %d arguments", len(args))
	}
	return nil
}

func (c *claiming) run(ctx context.Context, arg string) error {
	switch {
	case c.hold && c.holdFor.given:
		return usage("only one of --hold and --for is wanted")
	case !c.hold && !c.holdFor.given:
		return &problem{
			code: codeUsage, err: errors.New("one of --hold and --for is wanted"),
			hint: "A claim lives as long as its process: one that returned at once would be dead at once.",
		}
	case c.holdFor.given && c.holdFor.d == 0:
		return usage("--for 0 would hold nothing")
	}
	c.claimant.Version = readBuild().Version
	place, err := c.lookUp(ctx, arg)
	if err != nil {
		return err
	}
	if c.readOnly {
		return refused("claim", place.id)
	}
	if !place.found {
		if err := c.makeDir(place.dir); err != nil {
			return failed(err)
		}
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	store := c.store(place.dir)
	if c.observe.d > 0 {
		c.tellObserving(c.observe.d)
		if _, err := store.Observe(ctx, place.id, c.observe.d); err != nil {
			return c.refusal(err)
		}
		if ctx.Err() != nil {
			return endedBy(ctx)
		}
	}
	held, err := c.claim(ctx, store, place.id, c.timeout.d == 0, func(error) {})
	if err != nil {
		c.tellRefusal(err)
		return err
	}
	return c.keep(ctx, held)
}

// makeDir makes the directory of leases as AgentMux does, but nothing above the root that it belongs to. Where a person
// named the root, it may be another than the one that was meant: so it is told.
func (a *app) makeDir(dir string) error {
	if isDir(dir) {
		return nil
	}
	err := os.MkdirAll(dir, 0o777)
	if err == nil && a.root != "" {
		fmt.Fprintf(a.Stderr, "holdfast: there were no leases below %s; made %s\n", a.style().Safe(a.root), a.style().Safe(dir))
	}
	return err
}

func refused(op, id string) error {
	return &problem{code: codeUsage, err: &refusal{fmt.Sprintf("%s %s: refused by --read-only", op, id), lease.ErrReadOnly}}
}

func (a *app) store(dir string) *lease.Store {
	return &lease.Store{Dir: dir, ReadOnly: a.readOnly, Log: a.log()}
}

// log is the log of the library: what of it is left for a person.
func (a *app) log() *slog.Logger { return slog.New(unsaid{slog.NewTextHandler(a.Stderr, nil)}) }

// unsaid drops what the verb itself tells the person: all errors, at its end, and what it waits for.
type unsaid struct{ slog.Handler }

func (h unsaid) Enabled(ctx context.Context, level slog.Level) bool {
	return level < slog.LevelError && h.Handler.Enabled(ctx, level)
}

func (h unsaid) Handle(ctx context.Context, r slog.Record) error {
	switch r.Message {
	case fslock.MsgLate, fslock.MsgLongHeld, fslock.MsgBlocked, fslock.MsgReleaseFailed:
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h unsaid) WithAttrs(attrs []slog.Attr) slog.Handler { return unsaid{h.Handler.WithAttrs(attrs)} }

func (h unsaid) WithGroup(name string) slog.Handler { return unsaid{h.Handler.WithGroup(name)} }

// claim tries once, or again and again until --timeout, and calls waiting with each refusal that it does not return.
func (c *claiming) claim(ctx context.Context, s *lease.Store, id string, once bool, waiting func(error)) (*lease.Lease, error) {
	limited, cancel := c.bounded(ctx)
	defer cancel()
	if c.timeout.given && c.timeout.d == 0 {
		// Once is once, also where somebody is in the critical section: a claim makes one attempt however late it is.
		var stop context.CancelFunc
		limited, stop = context.WithDeadline(ctx, time.Now())
		defer stop()
	}
	for {
		held, err := s.Claim(limited, id, c.claimant)
		switch {
		case err == nil:
			return held, nil
		case ctx.Err() != nil:
			return nil, endedBy(ctx)
		case once || !errors.Is(err, lease.ErrHeld) && !errors.Is(err, lease.ErrBusy):
			return nil, c.refusal(err)
		}
		waiting(err)
		pause := time.NewTimer(claimPoll/2 + rand.N(claimPoll))
		select {
		case <-limited.Done():
		case <-pause.C:
		}
		pause.Stop()
		switch {
		case ctx.Err() != nil:
			return nil, endedBy(ctx)
		case limited.Err() != nil:
			p := c.refusal(err)
			p.code = codeTimedOut
			p.err = fmt.Errorf("timed out after %s: %w", &c.timeout, p.err)
			return nil, p
		}
	}
}

// refusal says why a claim, verification or release was refused, with the code that goes with it.
func (a *app) refusal(err error) *problem {
	p := &problem{code: codeFailed, err: err}
	conflict, isConflict := errors.AsType[*lease.ConflictError](err)
	switch {
	case errors.Is(err, lease.ErrBadID), errors.Is(err, lease.ErrReadOnly), errors.Is(err, lease.ErrHolderAlive):
		p.code = codeUsage
	case errors.Is(err, lease.ErrLost):
		p.code = codeLost
	case errors.Is(err, lease.ErrEpoch), errors.Is(err, lease.ErrBusy), sectionBlocked(err):
		p.code = codeBlocked
	case errors.Is(err, lease.ErrUnreadable), isConflict && conflict.Verdict.State == verdict.Unreadable:
		p.code = codeUnreadable
	case errors.Is(err, lease.ErrHeld):
		p.code = codeHeld
	}
	// What is lost because a renewal failed says so itself.
	if isConflict && errors.Is(conflict, lease.ErrLost) == errors.Is(err, lease.ErrLost) {
		a.explainConflict(p, conflict, time.Now())
	}
	if e, ok := errors.AsType[*lease.EpochError](err); ok && p.code == codeBlocked {
		p.err = &refusal{fmt.Sprintf("%s %s: %s: %s", e.Op, e.ID, e.Path, e.Reason), err}
		p.hint = "`" + a.onID("epoch", e.ID) + "` shows and repairs it."
		if isDir(e.Path) {
			p.hint = moveAway(e.Path)
		}
	}
	return p
}

const moveFlockFile = "Look at what it is, and move it away when nobody uses it: the next claim makes the file anew."

// sectionBlocked reports whether err says that what is no file is in the place of a lease's flock file.
func sectionBlocked(err error) bool {
	e, ok := errors.AsType[*lease.ConflictError](err)
	return ok && errors.Is(e.Err, lease.ErrUnreadable) && strings.HasSuffix(e.Path, ".lock")
}

// onID is a command of the verb on an ID that looks for it where this one did.
func (a *app) onID(verb, id string, options ...string) string {
	command := verdict.Command(verb, id, options...)
	if a.root == "" {
		return command
	}
	return verdict.With(command, "--root "+verdict.Quote(a.root))
}

// refusal is an error in a person's words.
type refusal struct {
	words string
	err   error
}

func (e *refusal) Error() string { return e.words }
func (e *refusal) Unwrap() error { return e.err }

// explainConflict puts into words who has the lease and until when, each once.
func (a *app) explainConflict(p *problem, e *lease.ConflictError, now time.Time) {
	st, h, v := a.style(), e.Holder, &e.Verdict
	words := shortener(st, h)
	sentence := words.Replace(v.Sentence)
	says := fmt.Sprintf("%s %s: ", e.Op, e.ID)
	who := ""
	if h != nil {
		who = fmt.Sprintf("channel %s, version %s, pid %d on %s", cmp.Or(h.Channel, "unknown"), cmp.Or(h.Version, "unknown"), h.PID,
			cmp.Or(h.Host, "an unknown host"))
		if !h.Acquired.IsZero() {
			who += " for " + text.Long(now.Sub(h.Acquired))
		}
		who = words.Replace(who)
	}
	switch {
	case errors.Is(e, lease.ErrHeld) && h == nil:
		says += "held. " + sentence
	case errors.Is(e, lease.ErrHeld):
		says += "held by " + who
		p.hint = "It clears " + text.Clears(*v, now) + "."
		switch v.State {
		case verdict.Live:
		case verdict.Late:
			says += ", its renewal overdue"
		case verdict.Remote:
			says += ", whose process cannot be checked from here"
		case verdict.Stopped, verdict.Unknown:
			says, p.hint = says+". "+sentence, "" // it says until when, too
		default:
			p.hint = "Another block of the same owner had it: this one gets it when it has run out."
		}
		if e.SameOwner {
			says += "; the claimant's own owner has it, for another block or by another process"
		}
	case errors.Is(e, lease.ErrLost) && h == nil:
		says += "lost: nobody holds it" // what cannot be read is not told as lost
	case errors.Is(e, lease.ErrLost):
		says += "lost: it is now that of " + who
	case errors.Is(e, lease.ErrHolderAlive):
		says += "it belongs to a process that is not proven dead: " + who
	case sectionBlocked(e):
		says += "blocked. " + strings.TrimSuffix(sentence, ".") + " (" + e.Path + ")"
		p.hint = moveFlockFile
	default:
		says += "it cannot be read. " + sentence
		p.hint = "`holdfast why " + verdict.Quote(e.Path) + "` tells more."
	}
	p.err = &refusal{strings.TrimSuffix(says, "."), p.err}
}

// keep holds the lease until it is told to stop, or loses it.
func (c *claiming) keep(ctx context.Context, held *lease.Lease) error {
	if err := c.tell("held", held, nil); err != nil {
		// Nobody knows that it is held: so it is not.
		return errors.Join(err, held.Release())
	}
	hold := ctx
	if c.holdFor.given {
		var cancel context.CancelFunc
		hold, cancel = context.WithTimeout(ctx, c.holdFor.d)
		defer cancel()
	}
	kept := make(chan error, 1)
	go func() { kept <- held.Keep(hold) }()
	var err error
	select {
	case err = <-kept:
		// The release of a lost lease is no error, and nobody may have looked for some seconds.
		if lost := inTime(func() error { return held.Verify(context.Background()) }); err == nil && errors.Is(lost, lease.ErrLost) {
			err = named("claim", lost)
		}
	case <-held.Lost():
		// The system may never answer the renewal that was too late: the loss is told all the same.
		select {
		case err = <-kept:
		case <-time.After(time.Second):
			err = fmt.Errorf("%w: a renewal does not return", lease.ErrLost)
		}
	}
	if err != nil {
		_ = c.tell("lost", held, err) // the exit code tells it to whoever does not read
		return c.refusal(err)
	}
	if err := held.Release(); err != nil {
		return c.refusal(err)
	}
	_ = c.tell("released", held, nil)
	if sig, ok := errors.AsType[*signalError](context.Cause(ctx)); ok && !sig.clean() {
		return exit(sig.code())
	}
	return nil
}

// tell prints what happened to the lease, one line.
func (a *app) tell(what string, l *lease.Lease, because error) error {
	e := event{Schema: schema, Event: what, ID: l.ID(), Epoch: l.Epoch(), ClaimID: l.ClaimID(), Path: l.Path(), PathB64: inexact(l.Path())}
	e.explain(because)
	return a.print(func(w io.Writer) {
		st := a.style()
		switch {
		case a.json:
			writeJSON(w, e)
		case what == "held":
			fmt.Fprintf(w, "held %s: epoch %d, claim id %s, %s\n", st.Safe(e.ID), e.Epoch, st.Safe(e.ClaimID), st.Safe(e.Path))
		default:
			fmt.Fprintf(w, "%s %s\n", what, st.Safe(e.ID))
		}
	})
}

// tellRefusal prints for programs what a person reads in the error.
func (a *app) tellRefusal(err error) {
	e := event{Schema: schema, Event: "refused"}
	if a.json && e.explain(err) {
		_ = a.print(func(w io.Writer) { writeJSON(w, e) }) // the exit code tells it to whoever does not read
	}
}

// explain adds what the error says of the lease or lock, and reports whether it says anything.
func (e *event) explain(err error) bool {
	var v *verdict.Verdict
	var holder *verdict.Holder
	if c, ok := errors.AsType[*lease.ConflictError](err); ok {
		e.ID, e.Path, v, holder = c.ID, c.Path, &c.Verdict, c.Holder
	} else if c, ok := errors.AsType[*fslock.ConflictError](err); ok {
		e.Path, v, holder = c.Path, &c.Verdict, c.Holder
	} else {
		return false
	}
	e.PathB64 = inexact(e.Path)
	e.State, e.Sentence, e.Claimable = v.State.String(), v.Sentence, claimable(v.Claimable)
	if holder != nil {
		e.Holder = newHolder(holder)
	}
	return true
}

// signalError is a context's cause: which signal ended it.
type signalError struct{ sig os.Signal }

func (e *signalError) Error() string { return "ended by " + e.sig.String() }

// clean reports whether the signal is the usual way to end a hold.
func (e *signalError) clean() bool { return e.sig == syscall.SIGTERM || e.sig == os.Interrupt }

func (e *signalError) code() int {
	if n, ok := e.sig.(syscall.Signal); ok {
		return codeSignal + int(n)
	}
	return codeFailed
}

func endedBy(ctx context.Context) error {
	if sig, ok := errors.AsType[*signalError](context.Cause(ctx)); ok {
		return exit(sig.code())
	}
	return failed(context.Cause(ctx))
}

// untilSignal returns a context that the first of INT, TERM, HUP and QUIT ends, with a *signalError as its cause; a second
// one ends the process as it always does. A reader of our output that goes away ends nothing. Stop waits.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	if !signal.Ignored(syscall.SIGHUP) { // under nohup it is to be ignored
		signal.Notify(signals, syscall.SIGHUP)
	}
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case sig := <-signals:
			signal.Stop(signals)
			cancel(&signalError{sig})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
		signal.Stop(signals)
		signal.Stop(pipe)
	}
}

func (a *app) verifyCommand() *cobra.Command {
	return claimCommand("verify", a.verify, "Tell whether a lease is still that claim's",
		"Tells whether the lease is still held by the claim: exit 0 if so, 6 if it is lost, 7 if that cannot be read.\n"+
			"A lease that ran out and that nobody took is still its own.")
}

func (a *app) releaseCommand() *cobra.Command {
	return claimCommand("release", a.release, "Give up a lease whose process is gone",
		"Removes the lease if it is that claim's: exit 0; 6 if it is not. It is refused (2) while the process that\n"+
			"claimed it runs: that one would go on believing that it holds it.")
}

// claimCommand is a verb on the lease of a claim that another process, or none, holds.
func claimCommand(verb string, run func(ctx context.Context, id, claimID string) error, short, long string) *cobra.Command {
	var claimID string
	cmd := &cobra.Command{
		Use: verb + " ID --claim-id CLAIM", Short: short, Long: long, Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args[0], claimID) },
	}
	cmd.Flags().StringVar(&claimID, "claim-id", "", "the claim id that `claim` printed (required)")
	return cmd
}

// handle rebuilds the handle of a claim and checks that the lease is still its own.
func (a *app) handle(ctx context.Context, op, arg, claimID string) (*lease.Lease, error) {
	if claimID == "" {
		return nil, usage("%s: --claim-id is wanted: the claim id that `holdfast claim` printed, or `holdfast ls --json` shows", op)
	}
	place, err := a.lookUp(ctx, arg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.bounded(ctx)
	defer cancel()
	l, err := a.store(place.dir).Handle(place.id, claimID)
	if err == nil {
		err = l.Verify(ctx)
	}
	switch {
	case err == nil:
		return l, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, lease.ErrLost):
		if l != nil {
			_ = a.tellJSON("lost", l, err)
		}
	}
	// It is verified for the sake of op.
	if e, ok := errors.AsType[*lease.ConflictError](err); ok {
		e.Op = op
	} else if e, ok := errors.AsType[*lease.IOError](err); ok {
		e.Op = op
	} else if e, ok := errors.AsType[*lease.IDError](err); ok {
		e.Op = op
	}
	return nil, a.refusal(err)
}

// tellJSON prints an event for programs only: a person reads the error.
func (a *app) tellJSON(what string, l *lease.Lease, because error) error {
	if !a.json {
		return nil
	}
	return a.tell(what, l, because)
}

func (a *app) verify(ctx context.Context, arg, claimID string) error {
	l, err := a.handle(ctx, "verify", arg, claimID)
	if err != nil {
		return err
	}
	return a.tell("verified", l, nil)
}

func (a *app) release(ctx context.Context, arg, claimID string) error {
	l, err := a.handle(ctx, "release", arg, claimID)
	if err != nil {
		return err
	}
	err = l.Release()
	if errors.Is(err, lease.ErrHolderAlive) {
		p := a.refusal(err)
		p.hint = "End that process, or take the lease from it: `" + a.onID("break", l.ID()) + "` shows how."
		return p
	}
	if err != nil {
		return a.refusal(err)
	}
	return a.tell("released", l, nil)
}
