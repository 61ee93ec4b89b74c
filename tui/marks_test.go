package tui

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/watch"
)

// marks marks entries by their ids or paths.
func (d *desk) marks(ids ...string) {
	d.t.Helper()
	for _, id := range ids {
		d.choose(id)
		d.press(" ")
	}
}

func TestMarkIsToggledAndTheCursorGoesOn(t *testing.T) {
	d := opened(t, 80, 24)
	d.press(" ", " ")
	if d.cursor != 2 || len(d.marked) != 2 {
		t.Fatalf("the cursor is on %d, %d marked", d.cursor, len(d.marked))
	}
	d.wants("2 marked")
	d.press("k", " ")
	d.wants("1 marked")
	d.press("esc")
	if len(d.marked) != 0 || strings.Contains(d.view(), "marked") {
		t.Error("esc does not clear the marks")
	}
	d.press("G", " ")
	if d.cursor != len(d.rows)-1 || !d.marked[d.selected] {
		t.Error("the last one is not marked")
	}
}

func TestEscClearsMarksBeforeTheFilter(t *testing.T) {
	d := opened(t, 80, 24)
	d.press("/", "r", "e", "enter", " ", "esc")
	if len(d.marked) != 0 || d.filter.text == "" {
		t.Errorf("%d marked, filter %q", len(d.marked), d.filter.text)
	}
	d.press("esc")
	if d.filter.text != "" {
		t.Error("a second esc does not clear the filter")
	}
}

func TestMarksFollowTheirEntries(t *testing.T) {
	d := opened(t, 80, 40)
	d.marks("crashed", "researcher")
	d.press("S", "s")
	signed := func() (names []string) {
		for i, s := range strings.Split(d.view(), "\n") {
			if i > 0 && strings.Contains(s, d.paint.glyph(markGlyph)) {
				names = append(names, oneSpaced(s))
			}
		}
		return names
	}
	if got := signed(); len(got) != 2 || !strings.Contains(strings.Join(got, "\n"), "crashed") || !strings.Contains(strings.Join(got, "\n"), "researcher") {
		t.Errorf("signs stand at %q", got)
	}
	d.press("/", "z", "z", "enter")
	d.wants("2 marked")
	d.press("esc") // the marks
	d.press("esc")
	d.marks("crashed", "researcher")

	all := everything(d.clock.Add(time.Second))
	back := slices.Clone(all.Entries)
	all.Entries = slices.DeleteFunc(all.Entries, func(e *watch.Entry) bool { return e.ID == "crashed" })
	d.see(all)
	d.wants("1 marked")
	again := everything(d.clock.Add(time.Second))
	again.Entries = back
	d.see(again)
	if len(d.marked) != 1 {
		t.Error("an entry that was gone is marked again")
	}
}

// wreck is a snapshot with two leases and a lock that anybody may take, and things that take a name.
func wreck(at time.Time) *watch.Snapshot {
	w := &world{at: at}
	w.lease("one", time.Second, dead(proc.Gone), nil)
	w.lease("two", time.Minute, alive(46120), func(f *verdict.LeaseFacts) { f.Record.PID = 46120 })
	w.lease("living", time.Second, alive(48213), nil)
	w.lease("free", 0, proc.Finding{}, func(f *verdict.LeaseFacts) { f.Missing = true })
	w.lock("index/8eb3/cache.lock", "", time.Minute, dead(proc.Gone), nil)
	s := w.snapshot()
	s.Seq = 7
	return s
}

const wreckedLock = storage + "/index/8eb3/cache.lock"

func wrecked(t *testing.T, s *Screen) *desk {
	t.Helper()
	d := sit(t, s, 140, 60)
	d.see(wreck(noon))
	return d
}

func TestOnePlanForAllThatIsMarked(t *testing.T) {
	d := wrecked(t, screenFor())
	d.marks("one", "two", "living", "free", wreckedLock)
	d.choose("living")
	d.plans("B")
	for _, part := range []string{
		"break 3 of 5 marked?", "3 to break (index/8eb3/cache.lock, one, two), 2 left out", "left out living: LIVE. It takes its name typed, one at a time: mark it alone, then B",
		"left out free is free: there is nothing to break", "1. break index/8eb3/cache.lock", "2. break one", "3. break two", "this ends the agent two within 5s",
		"nonce claim-one", "nonce claim-two", leases + "/one.lease.json", wreckedLock, "y break these",
		"holdfast break " + leases + "/one.lease.json --expect claim-one --yes",
	} {
		d.wants(part)
	}
	if got := d.press("enter"); len(got) != 0 || d.dialog != nil {
		t.Error("enter does not leave it")
	}
}

func TestMarkedWithoutAnythingToTakeCannotBeConfirmed(t *testing.T) {
	d := wrecked(t, screenFor())
	d.marks("living", "free")
	d.plans("B")
	d.wants("break 0 of 2 marked?")
	if got := d.press("y"); len(got) != 0 || d.dialog == nil {
		t.Errorf("y gave %+v", got)
	}
}

func TestOneMarkIsPlannedAsOneEntry(t *testing.T) {
	d := wrecked(t, screenFor())
	d.marks("living")
	d.choose("one")
	d.plans("B")
	if d.dialog.typing == nil || d.dialog.target.name != "living" {
		t.Errorf("the plan is %q", d.dialog.title)
	}
}

func TestActionOfAnEntryIsForThatEntryWhateverIsMarked(t *testing.T) {
	d := wrecked(t, screenFor())
	d.marks("two", wreckedLock)
	d.choose("one")
	d.press("a")
	d.plans("B")
	if d.dialog.many != nil || d.dialog.target.name != "one" {
		t.Errorf("the plan is %q", d.dialog.title)
	}
}

func TestMarkedThatTheListLeavesOutAreTold(t *testing.T) {
	d := wrecked(t, screenFor())
	d.marks("one", "two")
	d.press("/", "o", "n", "e", "enter")
	d.plans("B")
	d.wants("2 to break (one, two), 0 left out; 1 of the marked are not in the list that is shown")
}

func TestChangeOfOneKillsThePlanForAll(t *testing.T) {
	d := wrecked(t, screenFor())
	d.marks("one", "two", wreckedLock)
	d.plans("B")
	for range 40 {
		d.press("j") // what is told of a change is in sight all the same
	}
	changed := wreck(noon)
	changed.Time = d.clock.Add(time.Second)
	changed.Entries = slices.DeleteFunc(changed.Entries, func(e *watch.Entry) bool { return e.ID == "two" })
	d.see(changed)
	d.wants("two: It is gone since this plan was made.")
	if got := d.press("y"); len(got) != 0 {
		t.Error("y still acts")
	}
	same := wreck(noon)
	same.Time = d.clock.Add(time.Second)
	d.see(same)
	d.wants("is now as it was")
	if got := d.press("y"); len(got) != 0 {
		t.Error("y acts again")
	}
}

func TestMarkedAreBrokenOneByOne(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	other := k.dir + "/other.lock"
	k.put(other, gonePID(t), "", "writer-other", time.Minute)
	third := k.dir + "/third.lock"
	k.put(third, gonePID(t), "", "writer-third", time.Minute)
	var order []string
	k.s.tests.breakLock = func(ctx context.Context, l *fslock.Locker, i fslock.Info, r fslock.Removal) error {
		order = append(order, i.Path)
		if i.Path == other {
			return errMadeUp
		}
		return l.Break(ctx, i, r)
	}
	d := k.sit()
	d.marks(k.lock, other, third)
	d.plans("B")
	agreed := d.press("y")
	if len(agreed) != 1 || !agreed[0].acts || d.working != 1 {
		t.Fatalf("y gave %+v", agreed)
	}
	d.wants("Breaking 3 entries, one by one.")
	d.finish(agreed)
	d.wants("Broke 2 of 3 entries. Not done: index/8eb3d10c88aa02f1/other.lock: made up")
	if len(order) != 3 || exists(k.lock) || !exists(other) || exists(third) {
		t.Errorf("broke %q", order)
	}
	if len(d.marked) != 1 || !d.marked[ref{watch.Lock, other}] {
		t.Errorf("marked: %v", d.marked)
	}
	if d.working != 0 {
		t.Error("something is still under way")
	}
}

func TestMarkedChangeBetweenYesAndTheirTurnIsLeft(t *testing.T) {
	k := stockOf(t)
	k.putDead()
	other := k.dir + "/other.lock"
	k.put(other, gonePID(t), "", "writer-other", time.Minute)
	d := k.sit()
	d.marks(k.lock, other)
	d.plans("B")
	agreed := d.press("y")
	k.put(other, gonePID(t), "", "writer-new", time.Minute)
	d.finish(agreed)
	d.wants("Broke 1 of 2 entries. Not done: index/8eb3d10c88aa02f1/other.lock: changed since the plan was made")
	if !exists(other) {
		t.Error("it was broken all the same")
	}
}

func TestMarkedHoldsAreReleasedTogether(t *testing.T) {
	w, _ := watcherOf(t, "one", "two", "three")
	s := screenFor()
	s.Watch, s.Stores = polling(w, time.Second), w.Store
	d := sit(t, s, 140, 60)
	d.see(look(t, w))
	for _, id := range []string{"one", "two"} {
		d.choose(id)
		d.plans("C")
		d.finish(d.press("y"))
		d.see(look(t, w))
	}
	d.marks("one", "two", "three")
	d.plans("R")
	d.wants("release 2 of 3 marked?")
	d.wants("left out three: this screen does not hold it")
	d.finish(d.press("y"))
	d.wants("Released 2 entries.")
	if left := d.holds.view().list; len(left) != 0 || len(d.held) != 0 {
		t.Errorf("still held: %v", left)
	}
}

func TestMarkedAreRefusedWhereNothingMayBeChanged(t *testing.T) {
	s := screenFor()
	s.ReadOnly = true
	s.tests.breakLease = func(context.Context, *lease.Store, lease.Info, lease.Removal) error {
		t.Error("something was broken")
		return nil
	}
	d := wrecked(t, s)
	d.marks("one", "two")
	d.refuses("B", "B breaks, but this screen is read-only (RO)")
	d.refuses("R", "R releases, but this screen is read-only (RO)")
}

func TestTypedNameTellsEntriesApart(t *testing.T) {
	for name, c := range map[string]struct {
		make func(*world)
		path string
		want string
	}{
		"alone": {func(w *world) { w.lock("index/aa/cache.lock", "", 0, alive(1), nil) }, "index/aa/cache.lock", "cache.lock"},
		"same file name": {func(w *world) {
			w.lock("index/aa/cache.lock", "", 0, alive(1), nil)
			w.lock("index/bb/cache.lock", "", 0, alive(1), nil)
		}, "index/aa/cache.lock", "index/aa/cache.lock"},
		"same checkout": {func(w *world) {
			w.lock("index/aa/cache.lock", "web-app", 0, alive(1), nil)
			w.lock("inspect/aa/writer.lease", "web-app", 0, alive(1), nil)
		}, "inspect/aa/writer.lease", "inspect/aa/writer.lease"},
	} {
		w := &world{at: noon}
		c.make(w)
		d := sit(t, screenFor(), 140, 40)
		d.see(w.snapshot())
		d.choose(storage + "/" + c.path)
		d.plans("B")
		if got := d.dialog.typing.want; got != c.want {
			t.Errorf("%s: %q is to be typed", name, got)
		}
		d.wants("type " + c.want)
	}
}

func TestSpoiltPlanTellsHowThingsAreNow(t *testing.T) {
	d := plan(t, "crashed")
	see := func(change func(*world)) {
		w := &world{at: d.clock.Add(time.Second), seq: 9}
		change(w)
		d.see(w.snapshot())
		if got := d.press("y"); len(got) != 0 {
			t.Error("y acts")
		}
	}
	see(func(*world) {})
	d.wants("It is gone since this plan was made.")
	see(func(w *world) { w.lease("crashed", 0, alive(77), nil) })
	d.wants("It changed since this plan was made: LIVE.")
	see(func(w *world) {
		w.lease("crashed", 0, proc.Finding{}, func(f *verdict.LeaseFacts) { f.Missing = true })
	})
	d.wants("It changed since this plan was made: FREE.")
	if strings.Contains(d.screenText(), "since this plan was made: LIVE") {
		t.Error("what was so in between is still told")
	}
}
