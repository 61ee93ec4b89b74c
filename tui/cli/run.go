package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/fslock"
	"holdfast/lease"
)

// The exit codes of a command that could not be started, as shells have them.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

const (
	// killAfter is how long a command may take to end by TERM once what it ran under is lost.
	killAfter = 3 * time.Second
	// leaveAfter is how long what the command started may outlive it without being told of.
	leaveAfter = 200 * time.Millisecond
	// dieAfter is the same where a signal went to all of them: on a busy machine it takes its time.
	dieAfter = time.Second
	// lookFirst is when it is first looked at again whether they still run, and lookLast how long is waited between looks at
	// the most: each looks at all processes.
	lookFirst, lookLast = 5 * time.Millisecond, 100 * time.Millisecond
)

// running is `run`.
type running struct {
	claiming
	lock, lease single
	notGot      uint8
	ownCode     bool // notGot was given
	interrupted bool // by the terminal's ^C, as whoever started us is to see
}

// single is the text of a flag that is given at most once: which of two is meant, nobody could tell.
type single struct {
	text  string
	given bool
}

func (s *single) String() string { return s.text }
func (s *single) Type() string   { return "string" }

func (s *single) Set(text string) error {
	switch {
	case s.given:
		return fmt.Errorf("it was given before, as %q", s.text)
	case text == "":
		return errors.New("it is empty")
	}
	s.text, s.given = text, true
	return nil
}

func (a *app) runCommand() *cobra.Command {
	r := &running{claiming: claiming{app: a}}
	cmd := &cobra.Command{
		Use:   "run (--lock PATH | --lease ID) [-E CODE] -- COMMAND [ARGUMENT...]",
		Short: "Run a command under a lock or a lease",
		Long: "Waits for the lock or the lease, runs the command under it, and exits with the command's code: 128 and n if\n" +
			"signal n ended it, 127 if it was not found, 126 if it could not be run. With --timeout it waits that long at\n" +
			"most (exit 124); with --timeout 0 it tries once (exit 3 if it is held).\n\n" +
			"The command finds HOLDFAST_PATH and HOLDFAST_NONCE in its environment, of a lease also HOLDFAST_ID and\n" +
			"HOLDFAST_EPOCH. Signals are passed on to it and to what it starts. If the hold is lost, these get TERM, and\n" +
			"KILL 3 s later (exit 6). What of that it leaves running runs on without the hold.\n\n" +
			killedHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return usage("a command is wanted, after --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r.ownCode = cmd.Flags().Changed("not-got")
			if err := r.check(cmd); err != nil {
				return err
			}
			return r.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.SetInterspersed(false) // what follows the command is its own
	flags.Var(&r.lock, "lock", "the lock at that `PATH`")
	flags.Var(&r.lease, "lease", "the lease of that `ID`")
	flags.Uint8VarP(&r.notGot, "not-got", "E", 0, "exit with this `CODE` when it was not got")
	r.claimantFlags(cmd)
	return cmd
}

func (r *running) check(cmd *cobra.Command) error {
	if r.lock.given == r.lease.given {
		return usage("one of --lock and --lease is wanted")
	}
	for _, name := range [...]string{"owner", "block", "session", "channel"} {
		if r.lock.given && cmd.Flags().Changed(name) {
			return usage("--%s is a claimant's: a lock has none", name)
		}
	}
	return nil
}

// tenure is what a command runs under.
type tenure struct {
	name    string   // "lock PATH" or "lease ID"
	resting string   // what becomes of it while this process is stopped
	env     []string // for the command
	lost    <-chan struct{}
	errLost error
	verify  func() error // whether it is still ours
	renew   func() error // the same, and makes it last again where that is to be done
	release func() error // joins whatever keeps it
	explain func(error) *problem
}

// run gets what is wanted, and runs the command under it.
func (r *running) run(ctx context.Context, args []string) (err error) {
	signals := make(chan os.Signal, 16)
	// Who ignores a signal, as under nohup, wants the command to ignore it, too.
	signal.Notify(signals, slices.DeleteFunc(ending(), signal.Ignored)...)
	defer signal.Stop(signals)
	// A reader of our complaints that goes away ends nothing.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	defer func() {
		if p, ok := errors.AsType[*problem](err); ok && p.err == nil && r.interrupted {
			dieOfInterrupt()
		}
	}()

	t, err := r.await(ctx, signals)
	if err == nil {
		err = r.confirm(t)
	}
	if err == nil {
		return r.under(ctx, t, args, signals)
	}
	if p, ok := errors.AsType[*problem](err); ok && r.ownCode && p.code != codeUsage && p.code <= codeSignal {
		p.code = int(r.notGot)
	}
	return err
}

// confirm gives up what is not to be used: much may have happened since it was got.
func (r *running) confirm(t *tenure) error {
	err := t.verify()
	if err == nil {
		return nil
	}
	_ = t.release() // it can only say the same
	return t.explain(named("run", err))
}

// await gets what is wanted, unless a signal ends that. A signal that comes too late for it stays in the channel.
func (r *running) await(ctx context.Context, signals chan os.Signal) (*tenure, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var t *tenure
	got := make(chan error, 1)
	go func() {
		var err error
		t, err = r.get(ctx)
		got <- err
	}()
	for {
		select {
		case sig := <-signals:
			signal.Stop(signals) // a second one ends the process as it always does
			r.interrupted = sig == os.Interrupt && hasTerminal()
			cancel(&signalError{sig})
		case err := <-got:
			switch {
			case err != nil:
				return nil, err
			case ctx.Err() != nil:
				r.released(t.release())
				return nil, endedBy(ctx)
			}
			return t, nil
		}
	}
}

func (r *running) get(ctx context.Context) (*tenure, error) {
	if r.lock.given {
		return r.getLock(ctx)
	}
	place, err := r.lookUp(ctx, r.lease.text)
	if err != nil {
		return nil, err
	}
	if r.readOnly {
		return nil, refused("run", place.id)
	}
	if !place.found {
		if err := r.makeDir(place.dir); err != nil {
			return nil, failed(err)
		}
	}
	store := r.store(place.dir)
	if r.isInside() {
		if info, err := store.Look(place.id); err == nil {
			if h := info.Facts.Holder(); h != nil && r.insideOf(h.ClaimID) {
				return nil, &problem{code: codeHeld, err: fmt.Errorf("lease %s is %s", place.id, heldAround)}
			}
		}
	}
	r.claimant.Version = readBuild().Version
	n := notice{app: r.app, what: "lease " + place.id}
	l, err := r.claim(ctx, store, place.id, r.timeout.given && r.timeout.d == 0, func(err error) {
		if e, ok := errors.AsType[*lease.ConflictError](err); ok {
			n.tell(&e.Verdict, e.Holder)
		}
	})
	if err != nil {
		return nil, err
	}
	kept := make(chan struct{})
	keeping, stop := context.WithCancel(context.Background()) // it is renewed until it is released
	go func() {
		defer close(kept)
		_ = l.Keep(keeping) // Lost says so
	}()
	within := func(call func(context.Context) error) func() error {
		return func() error {
			ctx, cancel := context.WithTimeout(context.Background(), answerLimit)
			defer cancel()
			return call(ctx)
		}
	}
	return &tenure{
		name: "lease " + l.ID(), resting: "is not renewed meanwhile, and can soon be claimed by others",
		env: []string{
			"HOLDFAST_PATH=" + l.Path(), "HOLDFAST_ID=" + l.ID(), "HOLDFAST_NONCE=" + l.ClaimID(),
			"HOLDFAST_EPOCH=" + strconv.FormatUint(l.Epoch(), 10),
		},
		lost: l.Lost(), errLost: lease.ErrLost, verify: within(l.Verify), renew: within(l.Renew), explain: r.refusal,
		release: func() error {
			err := l.Release()
			stop()
			_ = inTime(func() error { <-kept; return nil }) // a renewal that hangs in the system is not waited for
			return err
		},
	}, nil
}

func (r *running) getLock(ctx context.Context) (*tenure, error) {
	if r.readOnly {
		return nil, refused("run", r.lock.text)
	}
	path, err := absolute(r.lock.text)
	if err != nil {
		return nil, failed(err)
	}
	l, err := r.acquire(ctx, path)
	if err != nil {
		return nil, err
	}
	return &tenure{
		name: "lock " + l.Path(), resting: "has no heartbeat meanwhile, and is taken by nobody on this machine",
		env:  []string{"HOLDFAST_PATH=" + l.Path(), "HOLDFAST_NONCE=" + l.WriterEpoch()},
		lost: l.Lost(), errLost: fslock.ErrLost, verify: verification(l), renew: l.Verify, release: l.Release, explain: r.lockRefusal,
	}, nil
}

const heldAround = "held by the run that this one is inside of: it would never end"

// outer are the nonces of the runs around this process, the innermost first.
func (a *app) outer() []string {
	return strings.Fields(a.Getenv("HOLDFAST_NONCE") + " " + a.Getenv("HOLDFAST_AROUND"))
}

func (a *app) isInside() bool { return len(a.outer()) > 0 }

// insideOf reports whether the hold of that nonce is a run's that waits for this process: who waits for it in turn
// waits for ever.
func (a *app) insideOf(nonce string) bool { return slices.Contains(a.outer(), nonce) }

// change is what happened to a command.
type change struct {
	ended bool
	code  int            // what it ended with; 128 and n if signal n ended it
	by    syscall.Signal // what ended or stopped it; 0: it ended by itself
}

// under runs the command to its end, and gives up what it ran under.
func (r *running) under(ctx context.Context, t *tenure, args []string, signals chan os.Signal) error {
	cmd, err := r.command(t, args)
	var g *group
	if err == nil {
		signal.Notify(signals, passedOn()...)
		g, err = startGroup(cmd)
	}
	if err != nil {
		r.released(t.release())
		return notStarted(args[0], err)
	}
	defer g.close()
	lost, done := t.lost, ctx.Done()
	var kill <-chan time.Time
	signaled := false // all of it, so that it may be ending
	for {
		select {
		case c := <-g.changes:
			if c.ended {
				had := g.end(c.by != 0)
				leave := leaveAfter
				if signaled || slices.Contains(ending(), os.Signal(c.by)) {
					leave = dieAfter
				}
				err := r.after(t, g, c.code, leave, kill)
				// Only from a death by it does a shell know that a loop around us is to end.
				r.interrupted = had && c.by == syscall.SIGINT && !isClosed(t.lost)
				return err
			}
			if isClosed(t.lost) {
				continue // it is ending, or will be killed
			}
			if g.suspend(c.by, signals, func() { r.say("stopped; the %s is still held: it %s", t.name, t.resting) }) {
				// What was lost while nobody looked is no command's to go on with.
				_ = t.renew() // lost says so
				if !isClosed(t.lost) {
					g.resume()
				}
			}
		case sig := <-signals:
			signaled = signaled || slices.Contains(ending(), sig)
			g.pass(sig)
		case <-lost:
			lost = nil
			r.say("the %s is lost: ending the command", t.name)
			g.terminate()
			kill = time.After(killAfter)
		case <-kill:
			kill = nil
			r.say("the command does not end: killing it")
			g.kill()
		case <-done:
			done, signaled = nil, true
			g.terminate()
		}
	}
}

// after gives up what an ended command ran under, and tells what it left behind. That has the time of leave to go by
// itself; kill is when it is to be killed, of a hold that is lost.
func (r *running) after(t *tenure, g *group, code int, leave time.Duration, kill <-chan time.Time) error {
	if isClosed(t.lost) {
		for pause := lookFirst; g.runs() && kill != nil; pause = min(2*pause, lookLast) {
			select {
			case <-kill:
				kill = nil
				g.kill()
			case <-time.After(pause):
			}
		}
		return r.lost(t)
	}
	left := g.runs()
	for begun, pause := time.Now(), lookFirst; left && time.Since(begun) < leave; pause = min(2*pause, lookLast) {
		time.Sleep(pause)
		left = g.runs()
	}
	// It may be lost for some seconds without anybody having looked.
	err := inTime(t.verify)
	if errors.Is(err, t.errLost) {
		err = r.lost(t)
	} else {
		r.released(t.release())
		err = exit(code)
	}
	if left && g.runs() {
		r.say("the command has ended, but what it started still runs (process group %d): without the %s", g.pid, t.name)
	}
	return err
}

// lost is the end of a run whose hold was lost.
func (r *running) lost(t *tenure) error {
	err := whyLost(t.verify, t.errLost)
	_ = t.release() // it can only say the same
	return t.explain(named("run", err))
}

// released tells of a release that failed. What the command ended with is told all the same.
func (r *running) released(err error) {
	if err != nil {
		r.say("it was not released, and clears by itself: %v", err)
	}
}

func (r *running) say(format string, args ...any) {
	st := r.style()
	fmt.Fprintf(r.Stderr, "holdfast: %s\n", st.Safe(fmt.Sprintf(format, args...)))
}

// command is what args name, with our streams as its own.
func (r *running) command(t *tenure, args []string) (*exec.Cmd, error) {
	path, err := exec.LookPath(args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // whoever has "." in his PATH wants what is there
		return nil, err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		// Of a run around this one, they would name another hold.
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{
			"HOLDFAST_PATH", "HOLDFAST_ID", "HOLDFAST_EPOCH", "HOLDFAST_NONCE", "HOLDFAST_AROUND",
		}, name)
	})
	if around := r.outer(); len(around) > 0 {
		env = append(env, "HOLDFAST_AROUND="+strings.Join(around, " "))
	}
	return &exec.Cmd{
		Path: path, Args: args, Env: append(env, t.env...), Stdin: r.Stdin, Stdout: r.terminal, Stderr: r.Stderr,
	}, nil
}

// notStarted says why a command could not be run, with the code that shells have for it.
func notStarted(name string, err error) error {
	code := codeNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		code = codeNotFound
	}
	if e, ok := errors.AsType[*exec.Error](err); ok {
		err = e.Err
	}
	return &problem{code: code, err: fmt.Errorf("run %s: %w", name, err), hint: "It was released."}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
