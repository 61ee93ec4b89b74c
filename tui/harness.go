package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"golang.org/x/term"

	"holdfast/fslock/proc"
	"holdfast/watch"
)

// harness runs the model under Bubble Tea v1 and sees to what that does not: a panic anywhere, a signal, or a
// terminal that is gone ends the screen with the terminal restored, and what is held released.
//
// Rules: every function of ours that Bubble Tea calls, and every goroutine, runs under guard; whatever ends the
// screen goes through end, once; run alone waits for what was started, each wait has a bound, and a second
// signal ends all waiting.
type harness struct {
	screen  *Screen
	model   *model
	inbox   *inbox
	holds   *holds
	gate    *gate
	ctx     context.Context //nolint:containedctx // the life of this run; set once, before anything starts
	program *tea.Program
	started sync.WaitGroup        // goroutines of ours but for jobs, which end with ctx
	release func() <-chan letGone // starts to release what is held, once
	hurry   bool                  // a second signal came: nothing is waited for any more

	ending chan struct{} // closed when something other than the user ends the screen
	once   sync.Once
	reason *ExitError // why; read after ending was closed

	// Only Bubble Tea's loop uses these.
	timer time.Time // when the outstanding timer rings; zero: there is none
	torn  tornMouse
	frame string // the last good picture
}

// Bounds of what is waited for at the end.
const (
	stopGrace    = time.Second     // for Bubble Tea to leave the terminal as it was
	releaseGrace = 5 * time.Second // for what is held to be released: each call has a bound of 2 s of its own
	joinGrace    = 2 * time.Second // for goroutines that look at files
	// The renderer wakes this often even if nothing is to be drawn: 20 times a second take more of a core than the whole
	// program may while it is idle, and at 12 a key is seen after 42 ms on average.
	fps = 12
)

func newHarness(s *Screen) *harness {
	h := &harness{screen: s, ending: make(chan struct{})}
	h.gate = newGate(s.Out, h.gone)
	describe := s.tests.describe
	if describe == nil {
		describe = func(_ context.Context, pid int) (proc.Details, error) { return proc.Local().Describe(pid) }
	}
	h.holds = &holds{
		library: s.tests.whole(), store: s.Stores, locker: s.Locker, log: s.Audit, claimant: s.Claimant,
		readOnly: s.ReadOnly, start: h.start,
	}
	h.release = h.releaser()
	h.inbox = newInbox(h.holds.news)
	h.holds.ring = h.inbox.ring
	h.model = &model{
		paint: newPaint(s.Theme, s.NoColor, s.ASCII), keys: keyMap(), demo: s.Demo, home: s.Home,
		readOnly: s.ReadOnly, holds: h.holds, describe: describe, history: s.History, looked: s.Looked,
		rescan: s.Rescan, exports: s.Exports, exportDir: s.tests.exports,
	}
	return h
}

// run is the whole life of the screen.
func (h *harness) run(parent context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = crash(h.screen.tests.crashDir, "run", r)
		}
	}()
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	h.ctx = ctx
	h.holds.ctx, h.holds.cancel = context.WithCancel(context.WithoutCancel(ctx)) // renews until it is released
	defer h.holds.cancel()

	signals := h.screen.tests.signals
	if signals == nil {
		signals = make(chan os.Signal, 2)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
		defer signal.Stop(signals)
	}
	restore := h.rememberTerminal()
	defer restore()

	saving, undo := func() {}, func() {}
	if h.screen.Alone {
		saving, undo = thrift()
	}
	defer undo()

	now := time.Now()
	w, height := h.size()
	h.model.update(resized{w, height}, now)
	h.start("watcher", func() {
		err := h.screen.Watch(ctx, func(s *watch.Snapshot) {
			saving()
			h.inbox.put(s)
		})
		if ctx.Err() == nil {
			h.inbox.end(err)
		}
	})
	h.program = tea.NewProgram(teaModel{h}, h.options()...)
	stops := (<-chan os.Signal)(h.screen.tests.stops)
	if h.screen.tests.signals == nil {
		heard, ignore := stopSignals()
		defer ignore()
		stops = heard
	}
	h.start("stops", func() { h.hearStops(ctx, stops) })
	over := make(chan error, 1)
	go func() {
		defer h.guard("screen")
		_, err := h.program.Run()
		over <- err
	}()

	ended := h.wait(ctx, signals, over)
	h.gate.close()
	restore()
	cancel()
	return h.outcome(parent, ended, h.letGo(signals))
}

// wait returns when the screen has ended and the terminal is as it was, or cannot be waited for any longer.
func (h *harness) wait(ctx context.Context, signals <-chan os.Signal, over <-chan error) error {
	ending, done := h.ending, ctx.Done()
	var late <-chan time.Time
	stop := func() {
		ending, done = nil, nil
		h.release()
		late = time.After(stopGrace)
		go h.program.Quit() // it waits while an Update does
	}
	for {
		select {
		case err := <-over:
			return err
		case sig := <-signals:
			if h.heard(sig) {
				break
			}
			h.hurry = true
			h.program.Kill()
			h.gate.leave()
			return nil
		case <-ending:
			stop()
		case <-done:
			stop()
		case <-late:
			h.program.Kill()
			h.gate.leave()
			return nil
		}
	}
}

// end notes why the screen ends and makes it end; false if something had ended it before.
func (h *harness) end(reason *ExitError) bool {
	first := false
	h.once.Do(func() {
		first = true
		h.reason = reason
		close(h.ending)
	})
	return first
}

func (h *harness) ended() bool {
	select {
	case <-h.ending:
		return true
	default:
		return false
	}
}

// heard ends the screen for a signal; false if something had ended it before.
func (h *harness) heard(sig os.Signal) bool {
	return h.end(&ExitError{Code: signalCode(sig), Err: fmt.Errorf("ended by %v", sig)})
}

// gone is called when the terminal takes no more output: nobody is there to say anything to.
func (h *harness) gone(err error) {
	h.end(&ExitError{Code: signalCode(syscall.SIGHUP), Err: fmt.Errorf("the terminal is gone: %w", err)})
}

// guard ends the screen when the function that deferred it panics.
func (h *harness) guard(where string) {
	if r := recover(); r != nil {
		h.end(crash(h.screen.tests.crashDir, where, r))
	}
}

// start runs f in a goroutine that run joins.
func (h *harness) start(where string, f func()) {
	h.started.Go(func() {
		defer h.guard(where)
		f()
	})
}

// letGone is what became of what was held.
type letGone struct {
	notes  []string
	failed bool
}

// releaser returns the function that starts to release what is held; calling it again gives the same channel.
func (h *harness) releaser() func() <-chan letGone {
	released := make(chan letGone, 1)
	start := sync.OnceFunc(func() {
		go func() {
			defer h.guard("release")
			notes, failed := h.holds.close()
			released <- letGone{notes, failed}
		}()
	})
	return func() <-chan letGone {
		start()
		return released
	}
}

// letGo waits until what is held is released and what was started has ended. What cannot be waited for runs out
// by itself, which is said.
func (h *harness) letGo(signals <-chan os.Signal) letGone {
	released := h.release()
	if h.hurry {
		return letGone{h.holds.expiry(), true}
	}
	var result letGone
	late := time.After(releaseGrace)
	for waiting := true; waiting; {
		select {
		case result = <-released:
			waiting = false
		case sig := <-signals:
			if !h.heard(sig) {
				return letGone{h.holds.expiry(), true}
			}
		case <-late:
			return letGone{h.holds.expiry(), true}
		}
	}
	joined := make(chan struct{})
	go func() {
		h.started.Wait()
		close(joined)
	}()
	select {
	case <-joined:
	case <-signals:
	case <-time.After(joinGrace):
	}
	return result
}

// hearStops has the model decide about each SIGTSTP: a stopped screen keeps nothing, and leaves the terminal as it is.
func (h *harness) hearStops(ctx context.Context, stops <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-stops:
			h.program.Send(stopAsked{})
		}
	}
}

// outcome is what Run returns.
func (h *harness) outcome(parent context.Context, err error, l letGone) error {
	switch {
	case h.ended():
		e := *h.reason
		e.Notes = append(e.Notes, l.notes...)
		return &e
	case errors.Is(err, tea.ErrProgramPanic):
		return &ExitError{Code: exitInternal, Err: err, Notes: l.notes}
	case parent.Err() != nil:
		return context.Cause(parent)
	case err != nil:
		// Reading or measuring the terminal failed: it went away, or never was one.
		return &ExitError{Code: signalCode(syscall.SIGHUP), Err: fmt.Errorf("the terminal is gone: %w", err), Notes: l.notes}
	case l.failed:
		return &ExitError{Code: exitFailed, Err: errors.New("not everything that was held could be released"), Notes: l.notes}
	default:
		return nil
	}
}

// options are how the program runs under Bubble Tea.
func (h *harness) options() []tea.ProgramOption {
	return []tea.ProgramOption{
		tea.WithContext(h.ctx), tea.WithoutSignalHandler(), tea.WithAltScreen(), tea.WithFPS(fps),
		tea.WithInput(h.screen.In), tea.WithOutput(h.gate.output()), tea.WithFilter(h.filter),
		tea.WithMouseCellMotion(),
	}
}

// rememberTerminal returns what puts the terminal's modes back, whatever happened in between.
func (h *harness) rememberTerminal() (restore func()) {
	var undo []func()
	for _, stream := range []any{h.screen.In, h.screen.Out} {
		f, ok := stream.(*os.File)
		if !ok || !term.IsTerminal(int(f.Fd())) {
			continue
		}
		if state, err := term.GetState(int(f.Fd())); err == nil {
			undo = append(undo, func() { _ = term.Restore(int(f.Fd()), state) })
		}
	}
	return func() {
		for _, f := range undo {
			f()
		}
	}
}

// size is how large the first picture is.
func (h *harness) size() (w, height int) {
	if f, ok := h.screen.Out.(*os.File); ok {
		if w, height, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && height > 0 {
			return w, height
		}
	}
	return 80, 24
}

// teaModel is the harness as Bubble Tea knows it.
type teaModel struct{ h *harness }

// Init starts the one outstanding fetch.
func (t teaModel) Init() tea.Cmd { return tea.Batch(t.h.job(t.h.inbox.fetch), t.h.alarm()) }

// Update translates messages and commands between Bubble Tea and the model.
func (t teaModel) Update(msg tea.Msg) (next tea.Model, cmd tea.Cmd) {
	h := t.h
	next = t // also after a panic
	defer h.guard("update")
	if h.ended() {
		return t, nil // what comes after the end, or after a panic, acts on nothing
	}
	var cmds []tea.Cmd
	var message any
	now := time.Now()
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		message = resized{msg.Width, msg.Height}
	case tea.KeyMsg:
		cmds = h.pressHeld(now)
		if !h.model.mouseless && h.torn.holds(msg) {
			due := escDue{h.torn.number}
			return t, tea.Batch(append(cmds, h.job(func(ctx context.Context) any { return after(ctx, escFor, due) }))...)
		}
		message = h.pressed(pressOf(msg))
	case tea.MouseMsg:
		cmds = h.pressHeld(now)
		at, ok := pointOf(msg)
		if !ok {
			return t, tea.Batch(cmds...)
		}
		message = at
	case escDue:
		if msg.number != h.torn.number {
			return t, nil
		}
		return t, tea.Batch(append(h.pressHeld(now), h.alarm())...)
	case rung:
		if msg.at.Equal(h.timer) {
			h.timer = time.Time{}
		}
		message = tick{}
	case delivery:
		message = msg
		cmds = append(cmds, h.job(h.inbox.fetch))
	case taken, released, broken, bundled, planned, swept, checked, described, resumed,
		looked, rescanned, exported, stopAsked:
		message = msg
	default:
		return t, nil
	}
	return t, tea.Batch(append(append(cmds, h.tell(message, now)...), h.alarm())...)
}

// tell gives the model a message.
func (h *harness) tell(message any, now time.Time) (cmds []tea.Cmd) {
	for _, c := range h.model.update(message, now) {
		cmds = append(cmds, h.command(c))
	}
	return cmds
}

// pressed lets tests see a key before the model does.
func (h *harness) pressed(key keyPress) keyPress {
	if h.screen.tests.onKey != nil {
		h.screen.tests.onKey(h, key.name)
	}
	return key
}

// pressHeld gives the model the ESC that was kept back, if one is: no report of the mouse began with it.
func (h *harness) pressHeld(now time.Time) []tea.Cmd {
	if !h.torn.takeHeld() {
		return nil
	}
	return h.tell(h.pressed(pressOf(tea.KeyMsg{Type: tea.KeyEscape})), now)
}

// after returns what after a while; nil when ctx ended before.
func after(ctx context.Context, wait time.Duration, what any) any {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(wait):
		return what
	}
}

// View draws the model. After a panic the last good picture stays until the terminal is restored.
func (t teaModel) View() (s string) {
	h := t.h
	s = h.frame
	defer h.guard("view")
	if h.ended() {
		return s
	}
	h.frame = h.model.view()
	return h.frame
}

// command is a command of the model as one of Bubble Tea's.
func (h *harness) command(c command) tea.Cmd {
	switch {
	case c.quit:
		return tea.Quit
	case c.suspend:
		stop := &stopping{harness: h}
		return tea.Exec(stop, func(error) tea.Msg { return resumed{refused: !stop.stopped} })
	case c.mouse == mouseOn:
		return tea.EnableMouseCellMotion
	case c.mouse == mouseOff:
		return tea.DisableMouse
	case c.copy != "":
		return h.job(func(context.Context) any {
			h.gate.write(clipboardSequence(c.copy, h.screen.Multiplexer))
			return nil
		})
	default:
		return h.job(c.run)
	}
}

// stopping stops the process while Bubble Tea has given the terminal back. Bubble Tea's own way waits for ever
// where no shell can make the process go on.
type stopping struct {
	harness *harness
	stopped bool
}

// Run stops this process and returns when it goes on.
func (s *stopping) Run() error {
	defer s.harness.guard("suspend")
	s.stopped = stopSelf()
	return nil
}

// SetStdin and the other two do nothing: nothing is run that would read or write.
func (s *stopping) SetStdin(io.Reader)  {}
func (s *stopping) SetStdout(io.Writer) {}
func (s *stopping) SetStderr(io.Writer) {}

// job runs f beside the screen; it ends when h.ctx does.
func (h *harness) job(f func(context.Context) any) tea.Cmd {
	return func() tea.Msg {
		defer h.guard("job")
		return f(h.ctx)
	}
}

// rung is what a timer says.
type rung struct{ at time.Time }

// alarm sets a timer for when the picture changes by time alone, unless an earlier one is outstanding.
func (h *harness) alarm() tea.Cmd {
	at := h.model.due()
	if !h.timer.IsZero() && !at.Before(h.timer) {
		return nil
	}
	h.timer = at
	return h.job(func(ctx context.Context) any {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			return rung{at}
		}
	})
}

// pressOf is a key in the model's words. Characters that arrived together have no name, so that "enter", typed
// fast or pasted, is never the key.
func pressOf(msg tea.KeyMsg) keyPress {
	k := keyPress{pasted: msg.Paste}
	if msg.Type == tea.KeyRunes || msg.Type == tea.KeySpace {
		if !msg.Alt {
			k.text = string(msg.Runes)
		}
		k.single = len(msg.Runes) == 1 && !msg.Paste
	} else {
		k.single = true
	}
	if k.single {
		k.name = msg.String()
	}
	return k
}

// filter drops the remains of mouse reports.
func (h *harness) filter(_ tea.Model, msg tea.Msg) tea.Msg {
	defer h.guard("filter")
	if h.torn.drops(msg, time.Now()) {
		return nil
	}
	return msg
}
