package tui

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/lease"
	"holdfast/watch"
)

// pretended is a lease that is nobody's.
type pretended struct{ released *atomic.Int64 }

func (pretended) Epoch() uint64                  { return 7 }
func (pretended) ClaimID() string                { return "claim-pretended" }
func (pretended) Keep(ctx context.Context) error { <-ctx.Done(); return nil }
func (pretended) Verify(context.Context) error   { return nil }
func (p pretended) Release() error               { p.released.Add(1); return nil }

// TestWhateverIsTyped holds what must be so after any keys, sizes and snapshots.
func TestWhateverIsTyped(t *testing.T) {
	w, store := watcherOf(t, "one", "two", "three")
	real := look(t, w).Entries
	var claims atomic.Int64 // over all runs: a property of claims that no run makes would be empty
	rapid.Check(t, func(t *rapid.T) { typeAnything(t, store, real, &claims) })
	if claims.Load() == 0 {
		t.Error("no run claimed anything")
	}
}

func typeAnything(t *rapid.T, store *lease.Store, free []watch.Entry, claims *atomic.Int64) {
	s := screenFor()
	s.ReadOnly = rapid.Bool().Draw(t, "read-only")
	s.ASCII = rapid.Bool().Draw(t, "ascii")
	s.NoColor = rapid.Bool().Draw(t, "no colour")
	s.Theme = rapid.SampledFrom(Themes()).Draw(t, "theme")
	s.Stores = func(dir string) *lease.Store {
		if dir != store.Dir {
			return nil
		}
		return store
	}
	var mine, released atomic.Int64
	s.tests.claim = func(_ context.Context, chosen *lease.Store, _ string, _ lease.Claimant) (holding, error) {
		if s.ReadOnly || chosen != store {
			t.Fatalf("claimed in %s, read-only %v", chosen.Dir, s.ReadOnly)
		}
		mine.Add(1)
		claims.Add(1)
		return pretended{&released}, nil
	}
	h := newHarness(s)
	m := h.model
	h.holds.ctx, h.holds.cancel = context.WithCancel(t.Context())
	at := noon
	seq := uint64(0)
	var jobs []command

	// tell gives the model a message and checks what must be so afterwards.
	tell := func(message any) {
		was, plan := m.current(), m.dialog
		var about target
		if plan != nil {
			about = plan.target
		}
		small := m.layout().class == tiny
		commands := m.update(message, at)
		if problem := pictureProblem(m); problem != "" {
			t.Fatal(problem)
		}
		if plan != nil && m.dialog == plan && plan.target != about {
			t.Fatalf("an open plan went from %+v to %+v", about, plan.target)
		}
		if _, ok := message.(delivery); ok && was != nil && !m.paused {
			stays := slices.ContainsFunc(m.rows, func(r *row) bool { return r.ref() == was.ref() })
			if stays && m.current().ref() != was.ref() {
				t.Fatalf("the cursor went from %v to %v", was.ref(), m.current().ref())
			}
		}
		_, isKey := message.(keyPress)
		for _, c := range commands {
			if isKey && small && !c.quit {
				t.Fatalf("a key acted on a screen of %dx%d", m.w, m.h)
			}
			if c.run != nil {
				jobs = append(jobs, c)
			}
		}
	}
	key := rapid.OneOf(
		rapid.SampledFrom([]string{
			"j", "k", "g", "G", "n", "N", "/", "s", "S", "!", "1", "2", "tab", "[", "]", "enter", "esc", "z", "p", "y", "Y", "?", "q",
			"ctrl+c", "ctrl+d", "ctrl+u", "ctrl+z", "up", "down", "home", "end", "pgup", "pgdown", "left", "backspace", " ",
		}),
		rapid.SampledFrom([]string{"C", "R", "y", "esc", "j", "G"}),
		rapid.StringMatching(`[ -~]`), rapid.SampledFrom([]string{"日", "é", "👍", "\u0301"}),
	)
	t.Repeat(map[string]func(*rapid.T){
		"key": func(t *rapid.T) { tell(typed(key.Draw(t, "key"))) },
		"chunk": func(t *rapid.T) {
			tell(keyPress{text: rapid.StringN(2, 20, 60).Draw(t, "chunk"), pasted: rapid.Bool().Draw(t, "pasted")})
		},
		"plan": func(t *rapid.T) {
			for i, r := range m.rows {
				if filepath.Dir(r.entry.Path) == store.Dir {
					m.goTo(i)
				}
			}
			tell(typed("C"))
			at = at.Add(dialogDeaf)
			tell(typed("y"))
		},
		"size": func(t *rapid.T) {
			tell(resized{rapid.IntRange(0, 200).Draw(t, "w"), rapid.IntRange(0, 60).Draw(t, "h")})
		},
		"time": func(t *rapid.T) {
			at = at.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "time")))
			tell(tick{})
		},
		"snapshot": func(t *rapid.T) {
			seq++
			snap := everything(at)
			snap.Seq = seq
			keep := rapid.Uint32().Draw(t, "keep")
			var entries []watch.Entry
			for i, e := range snap.Entries {
				if keep&(1<<i) != 0 {
					entries = append(entries, e)
				}
			}
			snap.Entries = append(entries, free...)
			if rapid.Bool().Draw(t, "reverse") {
				slices.Reverse(snap.Entries)
			}
			held, losses := h.holds.news()
			d := delivery{snapshot: snap, held: held, losses: losses}
			if m.fresh != nil {
				d.changes = watch.Diff(m.fresh, snap)
			}
			tell(d)
		},
		"news": func(t *rapid.T) {
			held, losses := h.holds.news()
			d := delivery{held: held, losses: losses, ended: rapid.IntRange(0, 20).Draw(t, "ended") == 0}
			if len(held.list) > 0 && rapid.IntRange(0, 5).Draw(t, "lose") == 0 {
				d.losses = append(d.losses, loss{held.list[0], fmt.Errorf("a reason\x1b[2J: %w", errMadeUp)})
			}
			tell(d)
		},
		"jobs": func(t *rapid.T) {
			todo := jobs
			jobs = nil
			for _, c := range todo {
				tell(c.run(t.Context()))
			}
		},
	})
	h.holds.close()
	if mine.Load() != released.Load() {
		t.Fatalf("%d claims, %d releases", mine.Load(), released.Load())
	}
}

func TestFilterNeverPanics(t *testing.T) {
	rows, _ := rowsOf(everything(noon), newPaint("", true, false))
	rapid.Check(t, func(t *rapid.T) {
		f, err := parseFilter(rapid.OneOf(rapid.String(), rapid.StringMatching(`(!?(state|kind|host|pid|beat)[:><][a-z0-9]*( |$)){1,4}`)).Draw(t, "filter"))
		if err != nil {
			return
		}
		for _, r := range rows {
			f.keeps(r, noon)
		}
	})
}

func TestLayoutFillsTheScreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 400).Draw(t, "w"), rapid.IntRange(1, 120).Draw(t, "h")
		l := arrange(w, h, rapid.IntRange(0, 9).Draw(t, "notices"), rapid.Bool().Draw(t, "zoomed"))
		if l.class == tiny {
			return
		}
		if got := 2 + l.notices.h + l.body.h + l.footer.h; got != h {
			t.Fatalf("%d of %d lines", got, h)
		}
		if l.list.h > 0 && l.list.h < 4 {
			t.Fatalf("the list has %d lines of %d", l.list.h, h)
		}
		for _, r := range []rect{l.list, l.detail, l.events, l.verdict} {
			if r.h > 0 && (r.y < l.body.y || r.y+r.h > l.body.y+l.body.h || r.x+r.w > w) {
				t.Fatalf("%+v is not within %+v", r, l.body)
			}
		}
		count, name := columnsFor(l.list.w)
		used := gutter + name + 1
		for c := range count {
			if c != ColName {
				used += c.width() + 1
			}
		}
		if l.list.w > 0 && (used-1 > l.list.w || name < minNameLeft) {
			t.Fatalf("columns take %d of %d cells, the name %d", used, l.list.w, name)
		}
	})
}
