package tui

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// queued is everything, with some who wait.
func queued(at time.Time) *watch.Snapshot {
	s := everything(at)
	for _, e := range s.Entries {
		switch {
		case e.ID == "researcher":
			e.Waiters = []watch.Waiter{{PID: 4242, Name: "node", How: watch.ByFlock}, {PID: 77, Name: "agent\x1bmux", How: watch.ByFlock, Stopped: true}}
			e.Subject.(*verdict.LeaseFacts).Inside = []proc.FlockHolder{{Process: proc.Process{PID: 46120, Name: "agentmux"}}}
		case e.ID == "relay":
			e.Hidden = true
		case strings.HasSuffix(e.Path, "8eb3d10c88aa02f1/writer.lease"):
			e.Waiters = []watch.Waiter{{PID: 4243, Name: "aft", How: watch.ByPoll}}
		case strings.HasSuffix(e.Path, "11c0ffee11c0ffee/writer.lease"):
			e.Waiters = []watch.Waiter{{PID: 9, How: watch.ByPoll}}
		}
	}
	return s
}

// sizes and looks are what every picture of these views is drawn in.
type picture struct {
	name            string
	w, h            int
	ascii, coloured bool
}

func eachPicture(t *testing.T, name string, draw func(*testing.T, *desk)) {
	t.Helper()
	for _, p := range []picture{
		{"140x40", 140, 40, false, false},
		{"80x24", 80, 24, false, false},
		{"50x12", 50, 12, false, false},
		{"140x40-ascii", 140, 40, true, false},
		{"80x24-ascii", 80, 24, true, false},
		{"50x12-ascii", 50, 12, true, false},
		{"140x40-colour", 140, 40, false, true},
		{"80x24-colour", 80, 24, false, true},
		{"50x12-colour", 50, 12, false, true},
	} {
		t.Run(p.name, func(t *testing.T) {
			s := screenFor()
			s.NoColor, s.ASCII = !p.coloured, p.ascii
			s.History = recorded
			d := sit(t, s, p.w, p.h)
			d.see(queued(noon))
			d.since = noon.Add(-27 * time.Hour)
			draw(t, d)
			compareGolden(t, name+"-"+p.name, d)
		})
	}
}

func TestPicturesOfViews(t *testing.T) {
	t.Run("waiting", func(t *testing.T) { eachPicture(t, "waiting", func(_ *testing.T, d *desk) { d.press("3") }) })
	t.Run("mine", func(t *testing.T) {
		eachPicture(t, "mine", func(_ *testing.T, d *desk) {
			d.holding("researcher", storage+"/index/11c0ffee11c0ffee/cache.lock")
			d.press("5")
		})
	})
}

func (d *desk) listed() string {
	var names []string
	for _, r := range d.rows {
		names = append(names, r.name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func TestWaitingShowsWhoWaitsForWhom(t *testing.T) {
	s := screenFor()
	s.NoColor = true
	d := sit(t, s, 200, 40)
	d.see(queued(noon))
	d.press("3")
	if got, want := d.listed(), "docs callgraph/11c0ffee11c0ffee/writer.lease, relay, researcher, web-app inspect/8eb3d10c88aa02f1/writer.lease"; got != want {
		t.Errorf("it lists %s", got)
	}
	d.wants("View 3, waiting: 12 hidden; esc shows all")
	d.choose("researcher")
	d.wants("pid 362 aft 4243 (poll)")
	d.wants("nobody inside: a process hidden from here")
	d.wants("1442@web02 pid 9 (poll)")
	d.wants("pid 48213 2 wait: node 4242 (flock), agent")
	d.press("enter")
	d.wants("node 4242, blocked in flock at its critical section")
	d.wants("flock at its critical section; it is stopped")
	d.wants("agentmux 46120 is in its critical section")
	d.press("esc")
	d.choose("relay")
	d.wants("somebody is in its critical section, and hidden from here")
	d.see(everything(noon.Add(time.Second)))
	d.wants("Nobody is seen waiting for anything. esc shows all 16 entries.")
	d.press("esc")
	if d.shows != allRows || len(d.rows) != 16 {
		t.Errorf("esc shows %v, %d rows", d.shows, len(d.rows))
	}
}

func TestWaitersAreInTheBriefDetailBesideTheNextStep(t *testing.T) {
	d := sit(t, screenFor(), 80, 24)
	d.see(queued(noon))
	d.choose("researcher")
	d.wants("waits 2 wait: node 4242 (flock)")
	d.choose(storage + "/inspect/8eb3d10c88aa02f1/writer.lease")
	d.wants("B remove that token")
	d.wants("waits aft 4243 (poll)")
}

func TestProcessTabShowsWhoWaitsAndWhatElseIsHeld(t *testing.T) {
	d := sit(t, screenFor(), 120, 40)
	d.see(queued(noon))
	d.choose("researcher")
	d.finish(d.press("]"))
	d.press("enter")
	d.wants("process 48213 node")
	d.wants("waits node 4242, blocked in flock")
	d.wants("holds too planner")
}

func TestMineIsWhatThisScreenHolds(t *testing.T) {
	d := opened(t, 120, 30)
	d.press("5")
	d.wants("This screen holds nothing. esc shows all 16 entries.")
	d.holding("researcher")
	if got := d.listed(); got != "researcher" {
		t.Errorf("it lists %s", got)
	}
	d.wants("View 5, mine: 15 hidden;")
	d.press("5")
	d.types("/is:mine")
	if got := d.listed(); got != "researcher" {
		t.Errorf("is:mine lists %s", got)
	}
	d.holding()
	d.wants("No entry matches /is:mine. esc shows all 16 entries again.")
}

func TestFilterKnowsTheViews(t *testing.T) {
	d := sit(t, screenFor(), 120, 30)
	d.see(queued(noon))
	d.types("/is:waiting")
	if len(d.rows) != 4 {
		t.Errorf("is:waiting lists %s", d.listed())
	}
	d.press("esc")
	d.types("/!is:problem")
	problems := 0
	for _, r := range d.all {
		if r.entry.IsProblem() {
			problems++
		}
	}
	for _, r := range d.rows {
		if r.entry.IsProblem() {
			t.Errorf("!is:problem lists %s", r.name)
		}
	}
	if len(d.rows) == 0 || problems == 0 {
		t.Errorf("%d rows, %d problems", len(d.rows), problems)
	}
	d.press("esc")
	d.types("/is:odd")
	d.wants(`is: wants problem, waiting or mine, not "odd"`)
}

func TestViewsAreOneStepEachAndToggle(t *testing.T) {
	for key, want := range map[string]kindOfRows{"2": problemRows, "!": problemRows, "3": waitingRows, "4": litterRows, "5": mineRows} {
		d := opened(t, 80, 24)
		d.press("2", "4", "5", "3")
		d.press("1", key)
		if d.shows != want {
			t.Errorf("%s shows %v", key, d.shows)
		}
		d.wants(want.String() + ": ")
		d.press(key)
		if d.shows != allRows {
			t.Errorf("%s twice shows %v", key, d.shows)
		}
		d.press("3", key, "esc")
		if d.shows != allRows {
			t.Errorf("esc after %s shows %v", key, d.shows)
		}
	}
}

func TestNextStepIsCopied(t *testing.T) {
	d := opened(t, 120, 30)
	d.choose("crashed")
	if got := d.press("c"); len(got) != 1 || got[0].copy != "holdfast claim crashed --hold" {
		t.Errorf("c gave %+v", got)
	}
	d.wants("Sent to the clipboard: holdfast claim crashed --hold")
	d.choose("sleeper")
	if got := d.press("c"); len(got) != 1 || got[0].copy != "kill -CONT 48377" {
		t.Errorf("c gave %+v", got)
	}
	d.choose("researcher")
	if got := d.press("c"); len(got) != 0 {
		t.Errorf("c gave %+v for what needs nothing", got)
	}
	d.wants("researcher needs no command")
}

func TestClipboardGetsThroughMultiplexers(t *testing.T) {
	const plain = "\x1b]52;c;aGk=\a"
	long := strings.Repeat("x", 3000)
	for multiplexer, want := range map[string]string{
		"":       plain,
		"tmux":   plain + "\x1bPtmux;\x1b\x1b]52;c;aGk=\a\x1b\\",
		"screen": "\x1bP" + plain + "\x1b\\",
	} {
		if got := clipboardSequence("hi", multiplexer); got != want {
			t.Errorf("%s: got %q", multiplexer, got)
		}
	}
	pieces := strings.Split(clipboardSequence(long, "screen"), "\x1b\\")
	whole := ""
	for _, p := range pieces {
		if len(p) > 768 {
			t.Errorf("a piece of %d bytes, which GNU screen drops", len(p))
		}
		whole += strings.TrimPrefix(p, "\x1bP")
	}
	if whole != clipboardSequence(long, "") {
		t.Error("the pieces are not the whole")
	}
}

// In the litter view a token has a row of its own: what its key is for is told there as on the row of its lock.
func TestATokensRowNamesTheKeyThatRemovesIt(t *testing.T) {
	const step = "next B remove this token (plan first)"
	for _, size := range [][2]int{{80, 24}, {140, 40}} {
		d := opened(t, size[0], size[1])
		d.press("4")
		if kind := d.current().entry.Kind; kind != watch.Token {
			t.Fatalf("the cursor is on a %v", kind)
		}
		d.wants(step)
		d.press("enter")
		d.wants(step)
		d.press("esc")
		if d.press("B"); d.dialog == nil || d.dialog.target.ref != d.current().ref() {
			t.Errorf("B opened %+v", d.dialog)
		}
		d.press("esc")
		d.readOnly = true
		if strings.Contains(d.screenText(), "B remove") {
			t.Errorf("a key is named that does nothing:\n%s", d.view())
		}
	}
}

// The names of the tabs are whole at every size that shows the detail: cut to some letters they say nothing, and left out
// nobody knows of them.
func TestTheTabsAreNamedAndStayWithTheZoom(t *testing.T) {
	for _, size := range [][2]int{{50, 10}, {50, 12}, {79, 24}, {80, 24}, {119, 30}, {120, 24}, {121, 24}, {128, 24}, {129, 24}, {140, 40}, {300, 60}} {
		d := opened(t, size[0], size[1])
		for _, id := range []string{"researcher", storage + "/inspect/8eb3d10c88aa02f1/writer.lease"} {
			d.choose(id)
			for tab, names := range []string{
				"[Overview] Process History Raw", "Overview [Process] History Raw", "Overview Process [History] Raw", "Overview Process History [Raw]",
			} {
				if d.layout().detail.h > 0 {
					d.wants(names)
				}
				for _, keys := range [][2]string{{"z", "z"}, {"enter", "esc"}} {
					d.press(keys[0])
					d.wants(names)
					if !strings.Contains(d.screenText(), text.Head(d.current().name, 5)) {
						t.Errorf("whose whole detail it is, is not told:\n%s", d.view())
					}
					d.press(keys[1])
					if d.zoomed || int(d.tab) != tab {
						t.Errorf("%s %s at %v left the tab %v", keys[0], keys[1], size, d.tab)
					}
				}
				checkPicture(t, d.model)
				d.press("]")
			}
		}
	}
}

func TestTheShortDetailOfABlockedLock(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose(storage + "/inspect/8eb3d10c88aa02f1/writer.lease")
	d.wants("clears at the next attempt, but a token of pid 377 on old-host blocks it next B remove that token (plan first) y copy path enter more")
	d.press("enter")
	d.wants("token unknown of pid 377 on old-host, 2h 0m old: blocks for ever")
	d.wants("B removes it")
}

// The keys behind a command are what a person at this screen needs of the line; c copies the command whole.
func TestALongCommandLeavesTheKeysInSight(t *testing.T) {
	d := opened(t, 80, 24)
	s := everything(noon)
	s.Seq, s.Roots[0].ChosenBy = 2, "argument"
	s.Roots[0].Path = registry
	for _, e := range s.Entries {
		if e.ID == "relay" {
			f := *e.Subject.(*verdict.LeaseFacts)
			e.ID = strings.Repeat("a-long-name-", 12)
			f.ID, e.Subject = e.ID, &f
		}
	}
	d.see(s)
	d.choose(strings.Repeat("a-long-name-", 12))
	d.wants("next holdfast claim a-long-name-")
	d.wants("y copy path enter more")
	checkPicture(t, d.model)
}

func TestTheProcessIsShownAtTheEndOfItsTree(t *testing.T) {
	s := screenFor()
	s.NoColor = true
	s.tests.describe = func(_ context.Context, pid int) (proc.Details, error) {
		d := proc.Details{Process: proc.Process{PID: pid, Name: "node"}, User: "ann", Parents: []proc.Process{{PID: 77, Name: "agent\x1bmux"}, {PID: 1, Name: "init"}}}
		for i := range 14 {
			d.Parents = slices.Insert(d.Parents, 1, proc.Process{PID: 500 + i, Name: "sh"})
		}
		return d, nil
	}
	for _, size := range [][2]int{{140, 40}, {120, 40}, {50, 12}} {
		d := sit(t, s, size[0], size[1])
		d.see(everything(noon))
		d.choose("sleeper")
		d.press("enter")
		d.finish(d.press("]"))
		d.press("z")
		d.finish(d.press("z"))
		lines := d.detailLines(d.layout().detail)
		at := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "   tree      1 init") })
		if at < 0 || !strings.HasPrefix(lines[at+1], "               500 sh") || !strings.HasPrefix(lines[at+2], "                 501 sh") {
			t.Fatalf("at %v:\n%s", size, strings.Join(lines, "\n"))
		}
		if own := lines[at+16]; !strings.HasSuffix(own, " 48377 node") || strings.Contains(strings.Join(lines, ""), "\x1b") {
			t.Errorf("at %v the tree ends with %q", size, own)
		}
		checkPicture(t, d.model)
	}
}
