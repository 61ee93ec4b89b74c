package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// watching is `watch`: what is told, and how.
type watching struct {
	*app
	all      bool
	plain    bool
	sessions bool

	told  *watch.Snapshot // the last that was told; nil: none yet
	width int             // of the column of names
}

// What `watch --json` prints: first that it is ready, then a line for each change. Keys that do not apply are left out.
type (
	jsonReady struct {
		Schema  int    `json:"schema"`
		Event   string `json:"event"`
		Entries int    `json:"entries"`
	}
	jsonChange struct {
		Schema   int         `json:"schema"`
		TimeMS   int64       `json:"time_ms"`
		Event    string      `json:"event"`
		Kind     string      `json:"kind,omitempty"`
		Root     string      `json:"root,omitempty"`
		Path     string      `json:"path"`
		PathB64  string      `json:"path_b64,omitempty"` // the path's bytes, if they are no UTF-8
		ID       string      `json:"id,omitempty"`
		From     string      `json:"from,omitempty"`
		To       string      `json:"to,omitempty"`
		Cause    string      `json:"cause,omitempty"`
		Sentence string      `json:"sentence,omitempty"`
		Holder   *jsonHolder `json:"holder,omitempty"`
	}
)

func (a *app) watchCommand() *cobra.Command {
	w := &watching{app: a}
	cmd := &cobra.Command{
		Use:   "watch [ROOT...]",
		Short: "Print a line for each change, until a signal",
		Long: "Tells what is watched and what is stuck now, and then prints a line for each change: what appeared, changed, was\n" +
			"taken by another holder, or is gone, and how a root is watched. A holder that dies is told though no file changes.\n" +
			"A renewal is told only with --all, and a lock that lives under 50 ms not at all. A reader that stops reading\n" +
			"loses nothing in sum: it is told later how what it heard last differs from what is.\n\n" +
			"It ends when its reader does (exit 0), by a signal (128 and its number), or after --timeout (exit 124). --json\n" +
			"prints first a line with the event ready, and then one a change; --plain prints one sentence a change, without\n" +
			"columns or colours.",
		Example: "  holdfast watch --json | jq -r 'select(.to == \"dead\") | .path'       what a dead process leaves\n" +
			"  holdfast watch --json | jq -r 'select(.event == \"taken\") | .holder.pid'",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.checkRoots(cmd.Root(), args, false); err != nil {
				return err
			}
			if w.json && w.plain {
				return usage("--json and --plain exclude each other")
			}
			return w.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&w.all, "all", false, "tell renewals, too")
	flags.BoolVar(&w.plain, "plain", false, "print sentences, as a screen reader wants them")
	flags.BoolVar(&w.sessions, "sessions", false, "print session ids, too (JSON)")
	return cmd
}

// grace is how long the end waits for a write that nobody reads, or a look at a file system that does not answer: neither
// can be called back.
const grace = time.Second

// part is how one of the two goroutines of watching ended.
type part struct {
	err   error
	panic any // what it panicked with, and where
}

func (w *watching) run(ctx context.Context, args []string) error {
	roots, err := w.roots(args)
	if err != nil {
		return err
	}
	if len(roots) == 0 {
		return usage("there is no place to watch: no root was given, and no home directory or variable names one")
	}
	limited, cancel := w.bounded(ctx)
	defer cancel()
	heard, stop := untilSignal(limited) // with it, a write to nobody is an error and no death
	defer stop()
	running, end := context.WithCancel(heard)
	defer end()
	var gone <-chan struct{}
	if f, ok := w.terminal.(*os.File); ok && !w.Output {
		var leave func()
		gone, leave = readerGone(f)
		defer leave()
	}

	// The watcher waits for no reader: of the snapshots that could not be told in time only the newest is kept.
	newest := make(chan *watch.Snapshot, 1)
	watcher := &watch.Watcher{Roots: roots, ReadOnly: w.readOnly}
	parts := make(chan part, 2)
	begin := func(work func() error) {
		go func() {
			var p part
			defer func() {
				if r := recover(); r != nil {
					p.panic = fmt.Sprintf("%v\n%s", r, debug.Stack())
				}
				parts <- p
			}()
			p.err = work()
		}()
	}
	// After the first look there is never more than one thing to do at a time, and the search of other processors for work
	// costs more than the work.
	alone := sync.OnceFunc(func() { runtime.GOMAXPROCS(1) })
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	begin(func() error {
		return watcher.Run(running, func(s *watch.Snapshot) {
			alone()
			select {
			case <-newest:
			default:
			}
			newest <- s
		})
	})
	begin(func() error { return w.tellAll(running, newest) })

	left := 2
	finish := func(p part) {
		if left--; p.panic != nil {
			panic(p.panic) // where Main sees it
		}
	}
	select {
	case p := <-parts:
		err = p.err
		finish(p)
	case <-gone:
	case <-heard.Done():
		err = endedBy(heard)
	}
	end()
	late := time.NewTimer(grace)
	defer late.Stop()
	for left > 0 {
		select {
		case p := <-parts:
			finish(p)
		case <-late.C:
			return err
		}
	}
	return err
}

// tellAll tells the snapshots until ctx ends or standard output takes no more, which is an error but for a reader that
// has seen enough.
func (w *watching) tellAll(ctx context.Context, newest <-chan *watch.Snapshot) error {
	put := func(line []byte) error {
		if ctx.Err() != nil {
			return endedBy(ctx)
		}
		// Not through output: what a write that is left behind does there, its caller would read at the same time.
		if _, err := w.terminal.Write(line); err != nil {
			return &writeError{err}
		}
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return endedBy(ctx)
		case s := <-newest:
			switch err := w.tell(s, put); {
			case errors.Is(err, syscall.EPIPE):
				return nil
			case err != nil:
				return err
			case w.timeout.given && w.timeout.d == 0:
				return context.DeadlineExceeded
			}
		}
	}
}

// tell prints what the snapshot says that was not told before, line by line.
func (w *watching) tell(s *watch.Snapshot, put func(line []byte) error) error {
	older := w.told
	w.told = s
	if older == nil {
		if err := w.tellBeginning(s, put); err != nil {
			return err
		}
		// That a root is missing or polled, or a place cannot be looked at, is told as if it were news.
		older = &watch.Snapshot{Entries: s.Entries}
		for _, r := range s.Roots {
			if r.Reason != "" {
				older.Roots = append(older.Roots, watch.Root{Path: r.Path})
			}
		}
	}
	enc := &encoder{sessions: w.sessions, describe: describe} // not for long: processes come and go
	changes := watch.Diff(older, s)
	var b bytes.Buffer
	for i := range changes {
		c := &changes[i]
		if c.Event == watch.Renewed && !w.all {
			continue
		}
		b.Reset()
		switch {
		case w.json:
			writeJSON(&b, enc.change(c))
		case w.plain:
			w.sentence(&b, c)
		default:
			w.columns(&b, c)
		}
		if err := put(b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// tellBeginning tells what is watched, how, and whether anything is stuck now.
func (w *watching) tellBeginning(s *watch.Snapshot, put func(line []byte) error) error {
	var b bytes.Buffer
	st, entries := w.style(), text.Count(len(s.Entries), "entry")
	switch {
	case w.json:
		writeJSON(&b, jsonReady{Schema: schema, Event: "ready", Entries: len(s.Entries)})
	case w.plain:
		fmt.Fprintf(&b, "Watching %s in %s. %s\n", entries, w.places(s, "%s, %s", " and "), headline(st, s))
	default:
		for _, e := range s.Entries {
			w.fit(w.title(e))
		}
		fmt.Fprintf(&b, "watching %s in %s\n", entries, w.places(s, "%s (%s)", ", "))
		if err := put(b.Bytes()); err != nil {
			return err
		}
		b.Reset()
		fmt.Fprintln(&b, headline(st, s))
	}
	return put(b.Bytes())
}

// places are the roots and how each is watched.
func (w *watching) places(s *watch.Snapshot, format, between string) string {
	words := make([]string, len(s.Roots))
	for i, r := range s.Roots {
		how := r.Watch
		switch {
		case r.Kind == "missing":
			how = "missing"
		case r.Every > 0:
			how += " " + r.Every.String()
		}
		words[i] = fmt.Sprintf(format, w.tilde(r.Path), w.style().Safe(how))
	}
	return strings.Join(words, between)
}

// tilde is a path with ~ for the home directory, made safe.
func (w *watching) tilde(path string) string {
	known := w.Home != "" && filepath.Dir(w.Home) != w.Home
	if rest, ok := strings.CutPrefix(path, w.Home); known && ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		path = "~" + rest
	}
	return w.style().Safe(path)
}

// change encodes one change.
func (e *encoder) change(c *watch.Change) jsonChange {
	j := jsonChange{
		Schema: schema, TimeMS: c.Time.UnixMilli(), Event: c.Event, Root: c.Root, Path: c.Path, PathB64: inexact(c.Path), ID: c.ID,
		Cause: c.Cause, Sentence: c.Sentence,
	}
	from, to := hasStates(c)
	if from {
		j.From = c.From.String()
	}
	if to {
		j.To = c.To.String()
	}
	if c.Event != watch.Watch {
		j.Kind, j.Holder = c.Kind.String(), e.holder(c.Entry)
	}
	if j.Holder != nil && c.Event == watch.Gone {
		j.Holder.Process = nil // of which nothing is known since
	}
	return j
}

// hasStates reports which of a change's states say something.
func hasStates(c *watch.Change) (from, to bool) {
	return c.Event != watch.Appeared && c.Event != watch.Watch, c.Event != watch.Gone && c.Event != watch.Watch
}

// title is what a person knows the entry by, made safe. Where it is stays whole.
func (w *watching) title(e *watch.Entry) string {
	st, place := w.style(), e.Place()
	if e.Name == "" || e.Name == place {
		return st.Safe(place)
	}
	return st.CutMiddle(st.Safe(e.Name), maxName) + " " + st.Safe(place)
}

// fit makes the column of names as wide as a name, up to a limit: what is longer stands out.
func (w *watching) fit(name string) { w.width = max(w.width, min(text.Width(name), maxName)) }

// columns prints a change as a line in columns.
func (w *watching) columns(b *bytes.Buffer, c *watch.Change) {
	const stateWidth = len("LATE -> ! EXPIRED") // of nearly all
	st := w.style()
	kind, name, state := "-", w.tilde(c.Path), ""
	if c.Event != watch.Watch {
		kind, name = c.Kind.String(), w.title(c.Entry)
		w.fit(name)
	}
	shown := c.To
	switch from, to := hasStates(c); {
	case from && to && c.From != c.To:
		state = text.Word(c.From) + " -> " + st.State(c.To)
	case to:
		state = st.State(c.To)
	case from:
		state, shown = "was "+text.Word(c.From), verdict.Free
	}
	pad := func(s string, width int) string { return st.Pad(s, max(width, text.Width(s))) }
	state = pad(state, stateWidth)
	if c.Event != watch.Watch && text.Color(w.color, w.Getenv, w.Output) {
		state = text.Colour(shown, state)
	}
	fmt.Fprintf(b, "%s %-8s %-5s %s %s %s\n", c.Time.Local().Format(time.TimeOnly), c.Event, kind, pad(name, w.width), state, w.says(c))
}

// says is a change's sentence, and who had what is gone. It is safe, and what a record says in it short.
func (w *watching) says(c *watch.Change) string {
	says := c.Sentence
	if c.Event == watch.Gone && c.Holder != nil {
		says += " " + whoHas(c) + " had it."
	}
	st := w.style()
	if c.Entry == nil {
		return st.Safe(says)
	}
	return st.Safe(shortenerOf(st, c.Entry).Replace(says))
}

func whoHas(c *watch.Change) string {
	if c.Holder.Host == "" {
		return fmt.Sprintf("pid %d", c.PID)
	}
	return fmt.Sprintf("pid %d on %s", c.PID, c.Holder.Host)
}

// sentence prints a change as a person would say it.
func (w *watching) sentence(b *bytes.Buffer, c *watch.Change) {
	st, at, says := w.style(), c.Time.Local().Format(time.TimeOnly), w.says(c)
	if c.Event == watch.Watch {
		fmt.Fprintf(b, "%s %s: %s\n", at, w.tilde(c.Path), says)
		return
	}
	what := c.Event
	switch {
	case c.Event == watch.Appeared:
		what += ", " + c.To.String()
	case c.Event == watch.Changed && c.From != c.To:
		what += " from " + c.From.String() + " to " + c.To.String()
	case c.Event == watch.Changed:
		what += ", still " + c.To.String()
	case c.Event != watch.Gone && c.Holder != nil: // taken or renewed
		what += " by " + st.Safe(shortenerOf(st, c.Entry).Replace(whoHas(c)))
	}
	fmt.Fprintf(b, "%s %s, a %s: %s. %s\n", at, w.title(c.Entry), c.Kind, what, says)
}
