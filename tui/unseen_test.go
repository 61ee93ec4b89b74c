package tui

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/watch"
)

// goneFrom is everything, of which the entries below place cannot be looked at since the time.
func goneFrom(s *watch.Snapshot, place string, since time.Time) *watch.Snapshot {
	gone := *s
	gone.Seq++
	gone.Entries = slices.Clone(s.Entries)
	gone.Errors = []watch.EntryError{{Path: place, Err: &fs.PathError{Op: "open", Path: place, Err: fs.ErrPermission}}}
	for i, e := range gone.Entries {
		if strings.HasPrefix(e.Path, place) {
			was := *e
			was.Unseen = since
			gone.Entries[i] = &was
		}
	}
	return &gone
}

// What cannot be looked at any more stays as it was seen last, however long ago, and says so wherever it is told.
func TestWhatCannotBeLookedAtIsShownAsItWasSeenLast(t *testing.T) {
	for _, size := range sizes {
		d := opened(t, size.w, size.h)
		since := noon.Add(time.Second)
		late := goneFrom(d.snap, leases, since)
		late.Time = noon.Add(9 * time.Second) // at which it would be late
		d.see(late)
		d.choose("researcher")
		i := slices.IndexFunc(d.rows, func(r *row) bool { return r == d.current() })
		count, widths := d.columnsIn(d.layout().list.w)
		line := d.rowLine(d.rows[i], false, d.layout().list.w, count, &widths)
		if !strings.Contains(line, "\x1b[2m✓ LIVE") || !strings.Contains(line, "unseen") {
			t.Errorf("%dx%d: %q", size.w, size.h, line)
		}
		d.wants("Last seen 14:02, cannot be looked at.")
		d.wants("Cannot look at " + leases[:20])
		if size.h > 12 {
			d.wants("nobody can tell")
			d.press("enter")
			d.wants("since 14:02 its place cannot be looked at")
			d.press("esc")
		}
		d.choose(storage + "/index/11c0ffee11c0ffee/cache.lock")
		if s := d.screenText(); strings.Contains(s, "Last seen") {
			t.Errorf("what can be seen is told as if not: %s", s)
		}
	}
	if got := momentWords(noon.Add(-24*time.Hour), noon); got != "2026-03-13 14:02" {
		t.Errorf("another day is %s", got)
	}
}

func TestNothingIsChangedUnseen(t *testing.T) {
	everywhere := home
	for _, c := range []struct{ key, id string }{
		{"C", "reviewer"},
		{"B", "crashed"},
		{"R", "researcher"},
		{"B", storage + "/inspect/8eb3d10c88aa02f1/writer.lease"},
		{"A", storage + "/inspect/8eb3d10c88aa02f1/writer.lease"},
	} {
		d := opened(t, 140, 40)
		d.holding("researcher")
		d.choose(c.id)
		if r := d.current(); d.whyNot(intentActions, r) != "" {
			t.Fatal("the list of actions is refused")
		}
		d.see(goneFrom(d.snap, everywhere, noon))
		d.refuses(c.key, "was last seen 14:02 and cannot be looked at: nothing is changed unseen")
		d.press("a")
		d.wants("no: " + d.current().name + " was last seen 14:02 and cannot be looked at")
		d.press("esc", " ")
		d.marks("boxed")
		if c.key == "B" || c.key == "R" {
			d.press(c.key)
			if d.dialog == nil || len(d.dialog.many) != 0 || !d.dead(d.dialog) {
				t.Errorf("%s of what is marked takes what cannot be seen: %+v", c.key, d.dialog)
			}
		}
		if strings.Contains(d.footerLine(), "break") || strings.Contains(d.footerLine(), "claim") {
			t.Errorf("the footer offers %q", d.footerLine())
		}
		d.press("esc", "esc", "c")
		if len(d.did) != 0 {
			t.Errorf("something was done: %+v", d.did)
		}
	}
}

func TestPlanDiesWithTheSightOfItsTarget(t *testing.T) {
	for _, key := range []string{"C", "B"} {
		d := opened(t, 80, 24)
		d.choose("crashed")
		d.plans(key)
		d.see(goneFrom(d.snap, leases, d.clock))
		d.wants("but It cannot be looked at since this plan was made")
		if did := d.press("y"); len(did) != 0 || d.dialog == nil {
			t.Errorf("%s is confirmed: %+v", key, did)
		}
	}
	d := opened(t, 80, 24)
	d.marks("crashed", "reviewer")
	d.plans("B")
	d.see(goneFrom(d.snap, leases+"/crashed", d.clock))
	d.wants("crashed: It cannot be looked at")
	if did := d.press("y"); len(did) != 0 {
		t.Errorf("it is confirmed: %+v", did)
	}
}

func TestTokenThatCannotBeSeenIsNotRemoved(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose(storage + "/inspect/8eb3d10c88aa02f1/writer.lease")
	d.see(goneFrom(d.snap, storage+"/inspect/8eb3d10c88aa02f1/.", noon))
	d.refuses("B", "cannot be looked at any more")
}

// Nobody is told that nothing is there where nobody could look.
func TestEmptyListOfADeniedRootSaysThatNothingIsKnown(t *testing.T) {
	denied := func(path string) watch.EntryError {
		return watch.EntryError{Path: path, Err: &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}}
	}
	roots := []watch.Root{
		{Path: "/srv/a", Kind: "plain", ChosenBy: "argument", Watch: "poll"},
		{Path: "/srv/b", Kind: "aft", ChosenBy: "$B", Watch: "inotify"},
		{Path: "/srv/c", Kind: "missing", ChosenBy: "default"},
	}
	for _, c := range []struct {
		name        string
		s           watch.Snapshot
		wants, lies string
	}{
		{
			"the only root",
			watch.Snapshot{Roots: roots[:1], Errors: []watch.EntryError{denied("/srv/a")}},
			"Could not be looked at, so nothing is known of what is in /srv/a (chosen by argument): permission denied", "No lease",
		},
		{
			"one of three",
			watch.Snapshot{Roots: roots, Errors: []watch.EntryError{denied("/srv/a")}},
			"/srv/a (chosen by argument): permission denied No lease (*.lease.json), lock (*.lock, *.lease) or reclaim token is in " +
				"/srv/b (aft; chosen by $B) /srv/c (not there; chosen by default)", "/srv/a (plain",
		},
		{
			"a place below",
			watch.Snapshot{Roots: roots[1:2], Errors: []watch.EntryError{denied("/srv/b/index")}},
			"Not all could be looked at. As far as it could, no lease", "No lease",
		},
		{"all looked at", watch.Snapshot{Roots: roots[1:]}, "No lease", "looked at"},
	} {
		c.s.Seq, c.s.Time = 1, noon
		if got := strings.Join(Empty(&c.s), " "); !strings.Contains(got, c.wants) || strings.Contains(got, c.lies) {
			t.Errorf("%s: %s", c.name, got)
		}
		d := sit(t, screenFor(), 140, 40)
		d.see(&c.s)
		if list := oneSpaced(strings.Join(d.emptyLines(80), " ")); strings.Contains(list, c.lies) {
			t.Errorf("%s: %s", c.name, list)
		}
	}
}

// The state that is told is the one of the moment from which on nothing was seen.
func TestJudgementEndsWithTheSight(t *testing.T) {
	e := everything(noon).Entries[0]
	was := *e
	was.Unseen = noon
	if a, b := e.Judge(noon.Add(time.Hour)).State, was.Judge(noon.Add(time.Hour)).State; a == b || b != verdict.Live {
		t.Errorf("seen it is %v, unseen %v", a, b)
	}
}

// What is gone is told by the name that a person knows it by, which only the picture before it has.
func TestAnEventTellsWhatIsGoneByItsName(t *testing.T) {
	for _, paused := range []bool{false, true} {
		d := opened(t, 140, 40)
		if paused {
			d.press("p")
		}
		w := &world{at: noon.Add(time.Second), seq: 1}
		w.lease("researcher", 0, alive(48213), nil)
		d.see(w.snapshot())
		if paused {
			d.press("p")
		}
		d.wants("gone web-app index/8eb3d10c88aa02f1/cache.lock")
	}
}
