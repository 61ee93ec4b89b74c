package tui

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/watch"
)

// opened is a desk with every state in sight.
func opened(t *testing.T, w, h int) *desk {
	t.Helper()
	d := sit(t, screenFor(), w, h)
	d.see(everything(noon))
	return d
}

func (d *desk) wants(part string) {
	d.t.Helper()
	if !strings.Contains(d.screenText(), oneSpaced(part)) {
		d.t.Errorf("the screen does not say %q:\n%s", part, ansi.Strip(d.view()))
	}
}

func TestProblemsStandFirst(t *testing.T) {
	d := opened(t, 140, 40)
	var states []string
	for _, r := range d.rows {
		state := r.entry.Verdict.State.String()
		if r.entry.Verdict.Flags.Has(verdict.IsBlocked) {
			state = "blocked"
		}
		if len(states) == 0 || states[len(states)-1] != state {
			states = append(states, state)
		}
	}
	if got, want := strings.Join(states, " "), "blocked unreadable dead expired stopped unknown late remote live free"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestMovingStaysWithinTheList(t *testing.T) {
	d := opened(t, 80, 24)
	last := len(d.rows) - 1
	for _, step := range []struct {
		keys string
		want int
	}{
		{"k", 0}, {"j", 1}, {"j", 2}, {"G", last}, {"j", last}, {"ctrl+u", last - 5}, {"g", 0}, {"ctrl+d", 5}, {"up", 4}, {"end", last}, {"home", 0},
	} {
		d.press(step.keys)
		if d.cursor != step.want {
			t.Fatalf("after %s the cursor is at %d, want %d", step.keys, d.cursor, step.want)
		}
		if rows := d.layout().list.h - 1; d.cursor < d.top || d.cursor >= d.top+rows {
			t.Fatalf("after %s the cursor is out of sight", step.keys)
		}
	}
}

func TestNextProblemSkipsWhatIsWell(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose("researcher")
	d.press("n")
	if d.cursor != 0 {
		t.Errorf("n went to %d, want the first problem", d.cursor)
	}
	d.press("N")
	if got := d.current().entry.ID; got != "planner" {
		t.Errorf("N went to %q, want the last problem", got)
	}
}

func TestCursorStaysOnItsEntryWhenRowsMove(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose("planner")
	w := &world{at: noon.Add(time.Second), seq: 1}
	w.lease("another", 0, dead(proc.Gone), nil)
	w.lease("planner", 0, alive(48213), nil) // it renewed: its row moves to the end
	w.lease("researcher", 0, alive(48213), nil)
	d.see(w.snapshot())
	if got := d.current().entry.ID; got != "planner" {
		t.Errorf("the cursor is on %q", got)
	}
	d.see(everything(noon.Add(2 * time.Second)))
	if got := d.current().entry.ID; got != "planner" {
		t.Errorf("the cursor is on %q", got)
	}
	for _, key := range []string{"s", "s", "S", "s"} {
		d.press(key)
		if got := d.current().entry.ID; got != "planner" {
			t.Errorf("after %s the cursor is on %q", key, got)
		}
	}
}

func TestCursorStaysInPlaceWhenItsEntryIsGone(t *testing.T) {
	d := opened(t, 80, 24)
	d.press("j", "j")
	w := &world{at: noon.Add(time.Second), seq: 1}
	w.lease("a", 0, alive(1), nil)
	w.lease("b", 0, alive(1), nil)
	d.see(w.snapshot())
	if d.cursor != 1 || d.current().entry.ID != "b" {
		t.Errorf("the cursor is at %d", d.cursor)
	}
	d.see((&world{at: noon.Add(2 * time.Second), seq: 5}).snapshot())
	if d.current() != nil {
		t.Error("an empty list has a current row")
	}
	d.press("enter", "j", "C", "R", "y", "z", "]", "n")
	checkPicture(t, d.model)
}

func TestSortByEveryColumn(t *testing.T) {
	d := opened(t, 140, 40)
	for c := ColName; c < columns; c++ {
		d.press("s")
		if d.sort != c {
			t.Fatalf("sorted by %v, want %v", d.sort, c)
		}
		for i := 1; i < len(d.rows); i++ {
			if d.compare(d.rows[i-1], d.rows[i]) > 0 {
				t.Errorf("by %v: %s stands before %s", c, d.rows[i-1].name, d.rows[i].name)
			}
		}
	}
	d.press("s")
	first := d.rows[0].ref()
	d.press("S")
	if d.rows[0].ref() == first {
		t.Error("S did not turn the order round")
	}
}

func TestFilter(t *testing.T) {
	for text, want := range map[string]int{
		"researcher": 1, "RESEARCHER": 1, "state:dead": 2, "!state:dead": 14, "kind:lock": 5, "kind:token": 1, "kind:token kind:lock": 0,
		"host:web": 2, "pid:9120": 1, "pid:9120 state:live": 0, "web-app": 2, "web-app !index": 1, "beat>30s": 3, "": 16, "!!": 16,
		"inspect/8eb3": 1, "stable": 8,
	} {
		d := opened(t, 140, 40)
		d.press("/")
		d.tell(keyPress{text: text, pasted: true})
		d.press("enter")
		if d.input != nil || len(d.rows) != want {
			t.Errorf("/%s: %d rows, want %d", text, len(d.rows), want)
		}
	}
}

func TestBadFilterIsToldInPlaceAndLeavesTheList(t *testing.T) {
	for text, part := range map[string]string{
		"state:foo": `no state "foo"`, "kind:x": `no kind "x"`, "pid:x": "pid: wants a number", "pid:-1": "pid: wants a number", "color:red": `no field "color"`,
		"state:": "state: wants a value", "beat>soon": "beat> wants a time",
		"!": "! needs a word", "web-app !": "! needs a word",
	} {
		d := opened(t, 140, 40)
		d.press("/")
		d.tell(keyPress{text: text, pasted: true})
		d.wants(part)
		want := 16
		if strings.HasPrefix(text, "web-app") {
			want = 2 // what can be read filters
		}
		if len(d.rows) != want {
			t.Errorf("%s: the list has %d rows", text, len(d.rows))
		}
		d.press("enter")
		if d.input == nil {
			t.Errorf("%s: enter took a filter that cannot be read", text)
		}
		d.press("esc")
		if d.input != nil || d.filter.text != "" {
			t.Errorf("%s: esc did not go back", text)
		}
	}
}

// An empty list looks like the answer that there is none: a word that wants more to be typed leaves the others alone.
func TestAHalfTypedTermFiltersNothing(t *testing.T) {
	for _, c := range []struct {
		typed, hint string
		rows        int
	}{
		{"state:", "state: wants a value: live late stopped", 16},
		{"state:dea", `no state "dea"`, 16},
		{"!state:", "state: wants a value", 16},
		{"kind:", "kind: wants a value: lease lock", 16},
		{"is:", "is: wants a value: problem waiting mine", 16},
		{"pid:", "pid: wants a value", 16},
		{"beat>", "beat> wants a time", 16},
		{"beat>30", "beat> wants a time", 16},
		{"kind:lock state:", "state: wants a value", 5},
		{"state: kind:lock", "state: wants a value", 5},
	} {
		d := opened(t, 140, 40)
		d.press("/")
		d.types(c.typed)
		d.wants(c.hint)
		if len(d.rows) != c.rows {
			t.Errorf("/%s lists %d rows, want %d", c.typed, len(d.rows), c.rows)
		}
		// Left by ^c it keeps nothing of what could not be read: the footer names what filters.
		d.press("ctrl+c")
		if strings.Contains(d.filter.text, "state:") {
			t.Errorf("/%s left as the filter %q", c.typed, d.filter.text)
		}
	}
	d := opened(t, 140, 40)
	d.press("/")
	d.types("state:dead")
	if len(d.rows) != 2 {
		t.Errorf("with its value it lists %d rows", len(d.rows))
	}
}

func TestFilterUndoneBringsTheCursorBack(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose("planner")
	d.press("/", "x", "y")
	d.press("esc")
	if got := d.current().entry.ID; got != "planner" {
		t.Errorf("the cursor is on %q", got)
	}
	d.press("/", "p", "l", "a", "n", "enter", "esc")
	if len(d.rows) != 16 || d.current().entry.ID != "planner" {
		t.Errorf("%d rows, the cursor is on %q", len(d.rows), d.current().entry.ID)
	}
}

func TestKeysThatAreTypedIntoTheFilterDoNothingElse(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose("crashed")
	d.press("/", "C", "R", "q", "y", "p", "?", "!")
	if d.dialog != nil || d.paused || d.help || quits(d.did) || d.input.value() != "CRqyp?!" {
		t.Errorf("the line is %q", d.input.value())
	}
}

func TestProblemsView(t *testing.T) {
	d := opened(t, 80, 24)
	d.press("!")
	for _, r := range d.rows {
		if s := r.entry.Verdict.State; s == verdict.Live || s == verdict.Free && !r.entry.Verdict.Stuck {
			t.Errorf("%s is %v", r.name, s)
		}
	}
	d.press("esc")
	if d.shows == problemRows {
		t.Error("esc did not leave the problems")
	}
	d.press("2", "1")
	if (d.shows == problemRows) || len(d.rows) != 16 {
		t.Error("1 did not show all")
	}
}

func TestEscTakesOneStepBackAndNeverQuits(t *testing.T) {
	d := opened(t, 80, 24)
	d.press("/", "e", "enter", "!", "enter", "?")
	for _, still := range []struct {
		name string
		open func() bool
	}{
		{"help", func() bool { return d.help }},
		{"zoom", func() bool { return d.zoomed }},
		{"filter", func() bool { return d.filter.text != "" }},
		{"problems", func() bool { return (d.shows == problemRows) }},
	} {
		if !still.open() {
			t.Fatalf("%s is not open", still.name)
		}
		d.press("esc")
		if still.open() {
			t.Errorf("esc did not close %s", still.name)
		}
	}
	d.press("esc", "esc", "esc")
	if quits(d.did) {
		t.Error("esc quit")
	}
}

func TestPauseHidesAndCountsWhatHappens(t *testing.T) {
	d := opened(t, 80, 24)
	d.press("p")
	w := &world{at: noon.Add(time.Second), seq: 1}
	w.lease("newcomer", 0, alive(77), nil)
	d.see(w.snapshot())
	d.later(time.Hour)
	if strings.Contains(d.view(), "newcomer") {
		t.Error("the paused picture moved")
	}
	d.wants("PAUSED +18") // one came, sixteen and a token went
	d.press("C")
	if d.dialog != nil {
		t.Error("a plan was made from a paused picture")
	}
	d.press("p")
	d.wants("newcomer")
	d.wants("gone symbols/77aa77aa77aa77aa/cache.lock")
	if d.hidden != 0 {
		t.Errorf("still %d hidden", d.hidden)
	}
}

func TestRenewalsDoNotPushEventsOut(t *testing.T) {
	d := opened(t, 80, 24)
	w := &world{at: noon.Add(time.Second), seq: 1}
	w.lease("newcomer", 0, alive(77), nil)
	d.see(w.snapshot())
	for i := range 30 {
		w := &world{at: noon.Add(time.Duration(i+2) * time.Second), seq: uint64(i + 2)}
		w.lease("newcomer", time.Duration(i)*time.Millisecond, alive(77), nil)
		w.entries[0].Raw = []byte{byte(i)}
		d.see(w.snapshot())
	}
	if len(d.renewals) != maxRenewals {
		t.Errorf("%d renewals are kept", len(d.renewals))
	}
	d.wants("gone symbols/77aa77aa77aa77aa/cache.lock")
}

func TestCopy(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose("researcher")
	if got := d.press("y"); len(got) != 1 || got[0].copy != leases+"/researcher.lease.json" {
		t.Errorf("y gave %+v", got)
	}
	if got := d.press("Y"); len(got) != 1 || got[0].copy != "claim-researcher" {
		t.Errorf("Y gave %+v", got)
	}
	d.choose("torn")
	if got := d.press("Y"); len(got) != 0 {
		t.Errorf("Y gave %+v for a record that cannot be read", got)
	}
}

func TestZoomScrollAndTabs(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose(storage + "/inspect/8eb3d10c88aa02f1/writer.lease")
	d.press("enter")
	at := d.cursor
	d.press("G")
	bottom := d.scroll
	if bottom == 0 || d.cursor != at {
		t.Fatalf("scrolled to %d, the cursor moved from %d to %d", bottom, at, d.cursor)
	}
	d.press("j", "ctrl+d")
	if d.scroll != bottom {
		t.Errorf("scrolled past the end to %d", d.scroll)
	}
	d.wants("seen from")
	d.press("]", "]", "]")
	if d.tab != tabRaw || d.scroll != 0 {
		t.Errorf("tab %v, scroll %d", d.tab, d.scroll)
	}
	d.press("]", "[", "z")
	if d.tab != tabRaw || d.zoomed {
		t.Errorf("tab %v, zoomed %v", d.tab, d.zoomed)
	}
	d.press("tab", "j")
	if !d.focused || d.cursor != at {
		t.Error("j moved the cursor while the detail has the keys")
	}
}

func TestProcessIsAskedAboutOnceAndAgainWhenOld(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose("sleeper")
	asked := d.press("]")
	if len(asked) != 1 || asked[0].run == nil {
		t.Fatalf("%d commands", len(asked))
	}
	if again := d.press("[", "]"); len(again) > 1 {
		t.Errorf("asked %d times at once", len(again))
	}
	d.finish(asked)
	d.wants("node server.js")
	if again := d.tellAt(tick{}, d.clock.Add(time.Second)); len(again) != 0 {
		t.Error("asked again after a second")
	}
	if again := d.tellAt(tick{}, d.clock.Add(processAge)); len(again) != 1 {
		t.Error("an old answer is not asked for again")
	}
	d.choose("far")
	d.tell(tick{})
	d.wants("pid 1442 of web02 is not seen from here")
}

func TestNothingButQuittingWorksWhileTooSmall(t *testing.T) {
	d := opened(t, 40, 9)
	d.press("j", "C", "y", "enter", "p", "!", "/", "?", "z", "s")
	if d.cursor != 0 || d.dialog != nil || d.paused || (d.shows == problemRows) || d.input != nil || d.help || d.zoomed || d.sort != 0 || len(d.did) != 0 {
		t.Errorf("something acted: %+v", d.did)
	}
	if !quits(d.press("q")) {
		t.Error("q does not quit")
	}
}

func TestTooSmallWithAHoldAsksBeforeItQuits(t *testing.T) {
	d := opened(t, 40, 9)
	d.holding("researcher")
	if quits(d.press("q")) {
		t.Fatal("q quit without a question")
	}
	d.wants("You hold 1 lease.")
	d.later(time.Second)
	if !quits(d.press("enter")) {
		t.Error("enter does not quit")
	}
}

// On a slow line two keys may come as one message. Whoever pressed them is told why nothing happened.
func TestKeysThatCameAtOnceAreToldOf(t *testing.T) {
	const says = "Several keys came at once; press one at a time."
	for name, c := range map[string]struct {
		key  keyPress
		open string // the key that was pressed before; "": none
		told bool
	}{
		"keys that act":       {keyPress{text: "Cy"}, "", true},
		"moving, then acting": {keyPress{text: "jC"}, "", true},
		"the same twice":      {keyPress{text: "qq"}, "", true},
		"half a character":    {keyPress{text: "\xe2a"}, "", true},
		"in the help":         {keyPress{text: "jj"}, "?", true},
		"in the actions":      {keyPress{text: "By"}, "a", true},
		"moving":              {keyPress{text: "jj"}, "", false},
		"a filter":            {keyPress{text: "/ab"}, "", false},
		"into a filter":       {keyPress{text: "ab"}, "/", false},
		"into the verbs":      {keyPress{text: "ab"}, ":", false},
		"a paste":             {keyPress{text: "Cy", pasted: true}, "", false},
	} {
		d := opened(t, 80, 24)
		d.choose("crashed")
		if c.open != "" {
			d.press(c.open)
		}
		d.tell(c.key)
		if got := d.note.text == says && !d.note.bad; got != c.told || got != strings.Contains(d.screenText(), says) {
			t.Errorf("%s: said %q:\n%s", name, d.note.text, d.view())
		}
		if d.dialog != nil || len(d.did) != 0 {
			t.Errorf("%s acted", name)
		}
		d.press("esc")
		if d.press("j"); d.note.text != "" {
			t.Errorf("%s: the next key left %q", name, d.note.text)
		}
	}
}

func TestOneKeyThatWasReallyPressedActs(t *testing.T) {
	for name, key := range map[string]keyPress{
		"paste":           {text: "C", pasted: true},
		"several at once": {text: "Cy"},
		"several q":       {text: "qq"},
	} {
		d := opened(t, 80, 24)
		d.choose("crashed")
		d.tell(key)
		if d.dialog != nil || len(d.did) != 0 {
			t.Errorf("%s acted", name)
		}
	}
	for keys, want := range map[string]int{"jjj": 3, "jjk": 1, "GG": 15, "jn": 2, "jC": 0, "jR": 0, "jq": 0, "j/": 0, "jj!": 0} {
		d := opened(t, 80, 24)
		d.tell(keyPress{text: keys})
		if d.cursor != want || d.dialog != nil || (d.shows == problemRows) || d.input != nil || len(d.did) != 0 {
			t.Errorf("%s in one read moved the cursor to %d", keys, d.cursor)
		}
	}
}

func TestFilterThatArrivesInOneReadIsTyped(t *testing.T) {
	d := opened(t, 80, 24)
	d.tell(keyPress{text: "/rel"})
	if d.input == nil || d.input.value() != "rel" || len(d.rows) != 1 {
		t.Fatalf("%d rows", len(d.rows))
	}
	d.press("enter")
	d.wants("/rel 1/1")

	d = opened(t, 80, 24)
	d.tell(keyPress{text: "/rel", pasted: true})
	if d.input != nil {
		t.Error("a paste opened the filter")
	}
	d.press("?")
	d.tell(keyPress{text: "/rel"})
	if d.input != nil {
		t.Error("the filter opened below the help")
	}
}

func TestSuspendIsRefusedWhileSomethingIsHeld(t *testing.T) {
	d := opened(t, 80, 24)
	if got := d.press("ctrl+z"); len(got) != 1 || !got[0].suspend {
		t.Errorf("got %+v", got)
	}
	d.holding("researcher")
	if got := d.press("ctrl+z"); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
	d.wants("Not suspended")
}

func TestHelpNamesEveryKeyAndNoOther(t *testing.T) {
	d := opened(t, 120, 80)
	d.press("?")
	s := d.view()
	for _, g := range d.keys {
		for _, b := range g.bindings {
			if !strings.Contains(s, b.Help().Desc) {
				t.Errorf("the help lacks %q", b.Help().Desc)
			}
		}
	}
	for _, absent := range []string{"waiting", "palette"} {
		if strings.Contains(s, absent) {
			t.Errorf("the help speaks of %s, which no key does", absent)
		}
	}
	d.press("q")
	if d.help || quits(d.did) {
		t.Error("q in the help does not just close it")
	}
}

func TestEveryKeyMeansOneThing(t *testing.T) {
	seen := map[string]intent{}
	for _, g := range keyMap() {
		for _, b := range g.bindings {
			for _, k := range b.Keys() {
				if other, ok := seen[k]; ok {
					t.Errorf("%s means %v and %v", k, other, b.intent)
				}
				seen[k] = b.intent
			}
		}
	}
}

func TestLossStaysUntilEsc(t *testing.T) {
	d := opened(t, 80, 24)
	d.tell(delivery{losses: []loss{{held{name: "researcher"}, lease.ErrLost}}})
	d.press("j", "k", "p", "p")
	d.wants("Lost lease researcher")
	d.press("esc")
	if strings.Contains(d.view(), "Lost lease") {
		t.Error("esc did not clear it")
	}
}

func TestPictureChangesBySecondsOnlyWhileItShowsThem(t *testing.T) {
	d := opened(t, 80, 24)
	if due := d.due(); due.After(noon.Add(time.Second)) {
		t.Errorf("beats of seconds are in sight, due is %v", due.Sub(noon))
	}
	w := &world{at: noon, seq: 1}
	w.lease("relay", 0, proc.Finding{}, func(f *verdict.LeaseFacts) { f.Missing = true })
	d.see(w.snapshot())
	if due := d.due(); !due.Equal(noon.Truncate(time.Minute).Add(time.Minute)) {
		t.Errorf("only the clock changes, due is %v", due.Sub(noon))
	}
}

func TestOverdueSnapshotIsStaleAndStopsActions(t *testing.T) {
	d := opened(t, 80, 24)
	d.choose("crashed")
	d.later(time.Minute)
	d.wants("STALE 1m")
	d.press("C")
	if d.dialog != nil {
		t.Error("a plan was made from a stale picture")
	}
	d.see(everything(d.clock))
	if d.stale() {
		t.Error("a fresh look is stale")
	}
}

func TestOlderSnapshotIsNotShown(t *testing.T) {
	b := newInbox(func() (holdings, []loss) { return holdings{}, nil })
	newer, older := &watch.Snapshot{Seq: 7}, &watch.Snapshot{Seq: 6}
	b.put(newer)
	b.put(older)
	if got := b.fetch(t.Context()).(delivery).snapshot; got != newer {
		t.Errorf("got %d", got.Seq)
	}
}
