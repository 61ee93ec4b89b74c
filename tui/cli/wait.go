package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// What `wait --json` prints, one line: how it ended.
type jsonWait struct {
	Schema    int            `json:"schema"`
	Event     string         `json:"event"` // free, claimable; held: it is still waited for
	Kind      string         `json:"kind"`
	Path      string         `json:"path"`
	PathB64   string         `json:"path_b64,omitempty"`
	ID        string         `json:"id,omitempty"`
	State     string         `json:"state"`
	Sentence  string         `json:"sentence"`
	Claimable *jsonClaimable `json:"claimable"`
	Holder    *jsonHolder    `json:"holder,omitempty"`
	WaitedMS  int64          `json:"waited_ms"`
}

func (a *app) waitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "wait PATH|ID",
		Short: "Wait until a lease or lock is free or can be taken",
		Long: "Waits until nobody holds the lease or lock, or whoever comes next takes it (exit 0). It takes nothing: another may\n" +
			"be quicker. It waits for ever; with --timeout it ends after that time (exit 124), and with --timeout 0 it looks once\n" +
			"and exits by the verdict: 3 held, 5 cannot tell, 7 unreadable, 8 blocked. What is blocked or unreadable is waited\n" +
			"for, too: somebody may act. That the directory is gone is an error (exit 1).",
		Args: oneTarget,
		RunE: func(cmd *cobra.Command, args []string) error { return a.wait(cmd.Context(), args[0]) },
	}
}

func (a *app) wait(ctx context.Context, arg string) error {
	t, err := a.target(ctx, arg)
	if err != nil {
		return err
	}
	if t.kind == watch.Token || t.kind == watch.Temp {
		return usage("%s is a %s: what can be waited for is its lock", t.path, t.kind)
	}
	if t.kind == watch.Lease && !isDir(filepath.Dir(t.path)) && t.arg == t.id {
		// Where the first lease of all would be made nobody holds one.
		return a.print(func(w io.Writer) {
			v := verdict.Verdict{State: verdict.Free, Claimable: verdict.Claimable{When: verdict.Now}, Sentence: "Nobody holds it."}
			a.tellWaited(w, &t, &watch.Entry{Kind: t.kind, Path: t.path, ID: t.id}, &v, 0)
		})
	}
	limited, cancel := a.bounded(ctx)
	defer cancel()
	sight, begin := a.sight(), time.Now()
	told := ""
	for {
		seen, err := sight.look(&t)
		if err != nil {
			return a.refusal(err)
		}
		if told == "" {
			if err := noEntry(&t, seen); err != nil {
				return err // nobody would ever let it go
			}
		}
		v := &seen.Verdict
		if v.Claimable.When == verdict.Now {
			return a.print(func(w io.Writer) { a.tellWaited(w, &t, &seen.Entry, v, time.Since(begin)) })
		}
		once := a.timeout.given && a.timeout.d == 0
		if once || limited.Err() != nil {
			return a.stillHeld(ctx, &t, seen, time.Since(begin), once)
		}
		// Told once, and again when it will not clear by itself any more, or not be read.
		if why := waitsFor(v); told == "" || why != "" && why != told {
			a.tellWaitingFor(&t, seen)
			told = why
			if told == "" {
				told = "held"
			}
		}
		pause := time.NewTimer(nextLook(v, time.Now()))
		select {
		case <-limited.Done():
		case <-pause.C:
		}
		pause.Stop()
		if ctx.Err() != nil {
			return failed(ctx.Err())
		}
	}
}

// nextLook is how long to wait until the next look: to the moment at which time alone changes it, or else a poll.
func nextLook(v *verdict.Verdict, now time.Time) time.Duration {
	d := poll
	for _, at := range []time.Time{v.Changes, v.Claimable.At} {
		if !at.IsZero() && at.After(now) {
			d = min(d, at.Sub(now)+time.Millisecond)
		}
	}
	return d
}

// waitsFor is what a wait hopes for that does not come by itself; "": it does.
func waitsFor(v *verdict.Verdict) string {
	if v.Claimable.When == verdict.Blocked {
		return "blocked by " + v.Claimable.By
	}
	if v.State == verdict.Unreadable {
		return v.Cause
	}
	return ""
}

func (a *app) tellWaitingFor(t *target, seen *sighting) {
	st, now := a.style(), time.Now()
	words := shortenerOf(st, &seen.Entry)
	says := fmt.Sprintf("waiting for %s: %s", t, seen.Verdict.Sentence)
	if clears := text.Clears(seen.Verdict, now); clears != "" {
		says += " It clears " + clears + "."
	}
	fmt.Fprintf(a.Stderr, "holdfast: %s\n", st.Safe(words.Replace(says)))
}

// stillHeld ends a wait that was in vain.
func (a *app) stillHeld(ctx context.Context, t *target, seen *sighting, waited time.Duration, once bool) error {
	if ctx.Err() != nil {
		return failed(ctx.Err())
	}
	v := &seen.Verdict
	if a.json {
		err := a.print(func(w io.Writer) { writeJSON(w, encodeWait("held", t, &seen.Entry, v, waited)) })
		if err != nil {
			return err
		}
	}
	sentence := shortenerOf(a.style(), &seen.Entry).Replace(strings.TrimSuffix(v.Sentence, "."))
	p := &problem{code: v.ExitCode(), err: fmt.Errorf("%s is %s: %s", t, v.State, sentence)}
	if !once {
		p.code, p.err = codeTimedOut, fmt.Errorf("timed out after %s: %w", &a.timeout, p.err)
	}
	if clears := text.Clears(*v, time.Now()); clears != "" {
		p.hint = "It clears " + clears + "."
	}
	if denied(seen.Seen()) {
		p.hint = strings.TrimSpace(p.hint + " " + whoMayRead)
	}
	return p
}

func (a *app) tellWaited(w io.Writer, t *target, e *watch.Entry, v *verdict.Verdict, waited time.Duration) {
	what := "claimable"
	if v.State == verdict.Free {
		what = "free"
	}
	if a.json {
		writeJSON(w, encodeWait(what, t, e, v, waited))
		return
	}
	st := a.style()
	fmt.Fprintf(w, "%s %s: %s\n", what, st.Safe(t.String()), st.Safe(shortenerOf(st, e).Replace(v.Sentence)))
}

func encodeWait(what string, t *target, e *watch.Entry, v *verdict.Verdict, waited time.Duration) jsonWait {
	j := jsonWait{
		Schema: schema, Event: what, Kind: e.Kind.String(), Path: e.Path, PathB64: inexact(e.Path), ID: t.id,
		State: v.State.String(), Sentence: v.Sentence, Claimable: claimable(v.Claimable), WaitedMS: waited.Milliseconds(),
	}
	if h := e.Holder(); h != nil {
		j.Holder = newHolder(h)
	}
	return j
}
