package tui

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/sweep"
	"holdfast/watch"
)

// pretended is a lease that is nobody's.
type pretended struct{ released *atomic.Int64 }

func (pretended) Epoch() uint64                  { return 7 }
func (pretended) Nonce() string                  { return "claim-pretended" }
func (pretended) Keep(ctx context.Context) error { <-ctx.Done(); return nil }
func (pretended) Verify(context.Context) error   { return nil }
func (p pretended) Release() error               { p.released.Add(1); return nil }

// broom sweeps nothing.
type broom struct {
	plan sweep.Plan
	runs func()
}

func (b broom) Plan(context.Context) (sweep.Plan, error) { return b.plan, nil }
func (b broom) Run(context.Context, sweep.Plan) (sweep.Report, error) {
	b.runs()
	return sweep.Report{}, nil
}

// agreedTo fails unless a removal was confirmed as what was removed wants.
func agreedTo(t *rapid.T, v verdict.Verdict, force bool, reason string) {
	if force == (v.Claimable.When == verdict.Now) || force && reason == "" {
		t.Fatalf("%s: force %v, reason %q", v.Sentence, force, reason)
	}
}

// deeds counts what all runs did: a property of claims that no run makes would be empty.
type deeds struct {
	mu   sync.Mutex
	done map[string]int
}

func (d *deeds) add(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done[what]++
}

// TestWhateverIsTyped holds what must be so after any keys, sizes and snapshots.
func TestWhateverIsTyped(t *testing.T) {
	w, store := watcherOf(t, "one", "two")
	if _, err := store.Claim(t.Context(), "three", lease.Claimant{Owner: "o", Block: "b"}); err != nil {
		t.Fatal(err)
	}
	k := stockOf(t)
	k.putDead()
	k.put(filepath.Join(k.dir, "other.lock"), gonePID(t), "", "writer-other", time.Minute)
	k.put(filepath.Join(k.dir, "far.lock"), 77, "web02", "far", 0)
	k.put(filepath.Join(k.dir, ".far.lock.reclaim"), 77, "web02", "far-token", 0)
	k.put(filepath.Join(k.dir, ".gone.lock.reclaim"), gonePID(t), "", "gone-token", time.Hour)
	real := append(look(t, w).Entries, look(t, k.w).Entries...)
	plan, err := (&sweep.Sweeper{Root: k.w.Roots[0].Path}).Plan(t.Context())
	if err != nil || len(plan.Steps) == 0 {
		t.Fatalf("%+v %v", plan, err)
	}
	place := filepath.Dir(filepath.Dir(t.TempDir())) // of all that is real
	done := &deeds{done: map[string]int{}}
	// What is rare is waited for: by chance, a hundred runs may be without it.
	var missing []string
	for round := 0; round < 20 && (round == 0 || len(missing) > 0) && !t.Failed(); round++ {
		rapid.Check(t, func(t *rapid.T) { typeAnything(t, store, k.w.Locker(), plan.Steps, real, place, done) })
		missing = nil
		for _, what := range []string{"claim", "acquire", "break lease", "break lock", "remove token", "sweep", "break several", "plan by mouse"} {
			if done.done[what] == 0 {
				missing = append(missing, what)
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("no run did this: %q (%v)", missing, done.done)
	}
}

func typeAnything(
	t *rapid.T, store *lease.Store, locker *fslock.Locker, litter []sweep.Step, real []*watch.Entry, place string, done *deeds,
) {
	s := screenFor()
	s.ReadOnly = rapid.Bool().Draw(t, "read-only")
	s.ASCII = rapid.Bool().Draw(t, "ascii")
	s.NoColor = rapid.Bool().Draw(t, "no colour")
	s.Theme = rapid.SampledFrom(Themes()).Draw(t, "theme")
	s.History = recorded
	s.Stores = func(dir string) *lease.Store {
		if dir != store.Dir {
			return nil
		}
		return store
	}
	var mine, released atomic.Int64
	s.Locker = locker
	acts := func(what string) {
		if s.ReadOnly {
			t.Fatalf("%s on a read-only screen", what)
		}
		done.add(what)
	}
	s.Rescan = func(context.Context) error { return nil }
	s.Exports = []Export{{"json", func(io.Writer, *watch.Snapshot) error { return errMadeUp }}}
	s.tests.exports = place
	s.tests.claim = func(_ context.Context, chosen *lease.Store, _ string, _ lease.Claimant) (holding, error) {
		acts("claim")
		if chosen != store {
			t.Fatalf("claimed in %s", chosen.Dir)
		}
		mine.Add(1)
		return pretended{&released}, nil
	}
	s.tests.acquire = func(*fslock.Locker, string) (holding, error) {
		acts("acquire")
		mine.Add(1)
		return pretended{&released}, nil
	}
	s.tests.breakLease = func(_ context.Context, _ *lease.Store, i lease.Info, r lease.Removal) error {
		acts("break lease")
		agreedTo(t, i.Verdict, r.Force, r.Reason)
		return nil
	}
	s.tests.breakLock = func(_ context.Context, _ *fslock.Locker, i fslock.Info, r fslock.Removal) error {
		acts("break lock")
		agreedTo(t, i.Verdict, r.Force, r.Reason)
		return nil
	}
	s.tests.removeToken = func(_ context.Context, _ *fslock.Locker, i fslock.TokenInfo, r fslock.Removal) error {
		acts("remove token")
		if i.Facts.Blocks(i.Facts.Look) != r.Force || r.Force && r.Reason == "" {
			t.Fatalf("%s was removed with %+v", i.Path, r)
		}
		return nil
	}
	s.tests.sweeper = func(string, bool, *fslock.Locker, *audit.Log) sweeper {
		return broom{sweep.Plan{Steps: litter}, func() { acts("sweep") }}
	}
	h := newHarness(s)
	m := h.model
	h.holds.ctx, h.holds.cancel = context.WithCancel(t.Context())
	at := time.Now() // as what is real was looked at
	seq := uint64(0)
	var jobs []command

	// tell gives the model a message and checks what must be so afterwards.
	tell := func(message any) {
		was, plan := m.current(), m.dialog
		var about target
		var parts []piece
		if plan != nil {
			about, parts = plan.target, slices.Clone(plan.many)
		}
		small := m.layout().class == tiny
		pressed, isKey := message.(keyPress)
		commands := m.update(message, at)
		if problem := pictureProblem(m); problem != "" {
			t.Fatal(problem)
		}
		if plan != nil && m.dialog == plan && (plan.target != about || !slices.Equal(plan.many, parts)) {
			t.Fatalf("an open plan went from %+v %+v to %+v %+v", about, parts, plan.target, plan.many)
		}
		if p, isMouse := message.(pointing); isMouse && m.dialog != nil && m.dialog != plan {
			if plan != nil || p.what != clicked || p.y != m.h-1 || small {
				t.Fatalf("the mouse at %+v opened %s", p, m.dialog.title)
			}
			done.add("plan by mouse")
		}
		if b, ok := message.(bundled); ok && len(b.done) > 1 && b.kind == dialogBreak {
			done.add("break several")
		}
		if len(m.markedRows()) != len(m.marked) {
			t.Fatalf("%d marks of %d entries", len(m.marked), len(m.markedRows()))
		}
		if _, ok := message.(delivery); ok && was != nil && !m.paused {
			stays := slices.ContainsFunc(m.rows, func(r *row) bool { return r.ref() == was.ref() })
			if stays && m.current().ref() != was.ref() {
				t.Fatalf("the cursor went from %v to %v", was.ref(), m.current().ref())
			}
		}
		for _, c := range commands {
			if c.acts && (!isKey || !pressed.single || pressed.pasted || plan == nil || s.ReadOnly || small) {
				t.Fatalf("%+v changed something; the plan was %+v, the screen %dx%d, read-only %v", message, plan, m.w, m.h, s.ReadOnly)
			}
			if c.acts && pressed.name != "y" && (pressed.name != "enter" || plan.typing == nil || plan.typing.lacks() != "") {
				t.Fatalf("%s confirmed %s", pressed.name, plan.title)
			}
			if isKey && small && !c.quit {
				t.Fatalf("a key acted on a screen of %dx%d", m.w, m.h)
			}
			if c.run != nil {
				jobs = append(jobs, c)
			}
		}
	}
	show := func(keep uint32, reverse bool) {
		seq++
		snap := queued(at)
		snap.Seq = seq
		var entries []*watch.Entry
		for i, e := range snap.Entries {
			if keep&(1<<i) != 0 {
				entries = append(entries, e)
			}
		}
		snap.Entries = append(entries, real...)
		if reverse {
			slices.Reverse(snap.Entries)
		}
		held, losses := h.holds.news()
		d := delivery{snapshot: snap, held: held, losses: losses}
		if m.fresh != nil {
			d.changes = watch.Diff(m.fresh, snap)
		}
		tell(d)
	}
	runJobs := func() {
		todo := jobs
		jobs = nil
		for _, c := range todo {
			tell(c.run(t.Context()))
		}
	}
	key := rapid.OneOf(
		rapid.SampledFrom([]string{
			"j", "k", "g", "G", "n", "N", "/", "s", "S", "!", "1", "2", "tab", "[", "]", "enter", "esc", "z", "p", "y", "Y", "?", "q",
			"ctrl+c", "ctrl+d", "ctrl+u", "ctrl+z", "up", "down", "home", "end", "pgup", "pgdown", "left", "backspace", " ", "m",
			"a", "v", ":", ":", "ctrl+r", "ctrl+s", "3", "5", "c",
		}),
		rapid.SampledFrom([]string{"C", "A", "R", "B", "W", "3", "4", "5", "c", "[", "y", "esc", "j", "G", "enter", "tab"}),
		rapid.StringMatching(`[ -~]`), rapid.SampledFrom([]string{"日", "é", "👍", "\u0301"}),
	)
	planOne := func(t *rapid.T) {
		tell(resized{rapid.IntRange(minWidth, 200).Draw(t, "w"), rapid.IntRange(minHeight, 60).Draw(t, "h")})
		if m.dialog != nil || m.input != nil || m.palette != nil || m.actions != nil || m.help {
			tell(typed("esc"))
		}
		if m.snap == nil || m.ended {
			show(^uint32(0), false)
		}
		if m.paused {
			tell(typed("p"))
		}
		if m.shows == waitingRows || m.shows == mineRows {
			tell(typed("1"))
		}
		var here []int
		for i, r := range m.rows {
			if strings.HasPrefix(r.entry.Path, place) {
				here = append(here, i)
			}
		}
		m.marked = nil
		if len(here) > 0 {
			m.goTo(rapid.SampledFrom(here).Draw(t, "row"))
		}
		tell(typed(rapid.SampledFrom([]string{"C", "A", "R", "B", "B", "W"}).Draw(t, "action")))
		if rapid.Bool().Draw(t, "sweep is planned") {
			runJobs()
		}
		if rapid.Bool().Draw(t, "done at once") {
			defer runJobs()
		}
		at = at.Add(dialogDeaf)
		if d := m.dialog; d != nil && d.typing != nil {
			for _, r := range d.typing.want {
				tell(typed(string(r)))
			}
			for _, k := range []string{"enter", "w", "h", "y", "enter"} {
				tell(typed(k))
			}
			return
		}
		tell(typed("y"))
	}
	t.Repeat(map[string]func(*rapid.T){
		"key": func(t *rapid.T) { tell(typed(key.Draw(t, "key"))) },
		"chunk": func(t *rapid.T) {
			tell(keyPress{text: rapid.StringN(2, 20, 60).Draw(t, "chunk"), pasted: rapid.Bool().Draw(t, "pasted")})
		},
		"plan": planOne, "plan again": planOne, "plan once more": planOne,
		"verb": func(t *rapid.T) {
			tell(typed(":"))
			if m.palette == nil {
				return
			}
			pasted := rapid.Bool().Draw(t, "pasted")
			if verb := rapid.SampledFrom(m.verbs()).Draw(t, "verb").verb; pasted {
				tell(keyPress{text: verb + "\r", pasted: true})
			} else {
				for _, r := range verb {
					tell(typed(string(r)))
				}
			}
			was := m.palette
			tell(typed("enter"))
			if pasted && m.palette != was {
				t.Fatal("the end of a paste ran it")
			}
		},
		"mouse": func(t *rapid.T) {
			tell(pointing{
				rapid.IntRange(-1, m.w+1).Draw(t, "x"), rapid.IntRange(-1, m.h+1).Draw(t, "y"),
				rapid.SampledFrom([]pointed{clicked, wheeledUp, wheeledDown}).Draw(t, "what"),
			})
		},
		"mouse on the footer": func(t *rapid.T) {
			tell(pointing{rapid.IntRange(0, m.w).Draw(t, "x"), m.h - 1, clicked})
		},
		"marks": func(t *rapid.T) {
			if m.dialog != nil || m.input != nil || m.help || len(m.rows) == 0 || m.layout().class == tiny {
				return
			}
			for range rapid.IntRange(1, 4).Draw(t, "marks") {
				m.goTo(rapid.IntRange(0, len(m.rows)-1).Draw(t, "row"))
				tell(typed(" "))
			}
		},
		"plan for what is marked": func(t *rapid.T) {
			tell(resized{120, 40})
			for range 8 {
				tell(typed("esc"))
			}
			if m.snap == nil || m.ended {
				show(^uint32(0), false)
			}
			if m.paused {
				tell(typed("p"))
			}
			for i := range m.rows {
				if strings.HasPrefix(m.rows[i].entry.Path, place) || rapid.IntRange(0, 9).Draw(t, "another") == 0 {
					m.goTo(i)
					tell(typed(" "))
				}
			}
			tell(typed(rapid.SampledFrom([]string{"B", "B", "R"}).Draw(t, "action")))
			if rapid.Bool().Draw(t, "something else meanwhile") {
				show(rapid.Uint32().Draw(t, "keep"), false)
			}
			at = at.Add(dialogDeaf)
			tell(typed("y"))
			runJobs()
		},
		"size": func(t *rapid.T) {
			tell(resized{rapid.IntRange(0, 200).Draw(t, "w"), rapid.IntRange(0, 60).Draw(t, "h")})
		},
		"time": func(t *rapid.T) {
			at = at.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "time")))
			tell(tick{})
		},
		"snapshot": func(t *rapid.T) { show(rapid.Uint32().Draw(t, "keep"), rapid.Bool().Draw(t, "reverse")) },
		"news": func(t *rapid.T) {
			held, losses := h.holds.news()
			d := delivery{held: held, losses: losses, ended: rapid.IntRange(0, 50).Draw(t, "ended") == 50}
			if len(held.list) > 0 && rapid.IntRange(0, 5).Draw(t, "lose") == 0 {
				d.losses = append(d.losses, loss{held.list[0], fmt.Errorf("a reason\x1b[2J: %w", errMadeUp)})
			}
			tell(d)
		},
		"jobs": func(*rapid.T) { runJobs() },
	})
	h.holds.close()
	if mine.Load() != released.Load() {
		t.Fatalf("%d claims, %d releases", mine.Load(), released.Load())
	}
}

func TestFilterNeverPanics(t *testing.T) {
	d := sit(t, screenFor(), 80, 24)
	d.see(everything(noon))
	rapid.Check(t, func(t *rapid.T) {
		f, err := parseFilter(rapid.OneOf(rapid.String(), rapid.StringMatching(`(!?(state|kind|host|pid|beat)[:><][a-z0-9]*( |$)){1,4}`)).Draw(t, "filter"))
		if err != nil {
			return
		}
		for _, r := range d.all {
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
