package tui

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
)

func TestListIsWhereItWasAfterADetail(t *testing.T) {
	d := opened(t, 80, 24)
	d.press("j", "j", "j")
	was := d.view()
	d.press("enter", "esc")
	if d.top != 0 || d.view() != was {
		t.Errorf("the list begins at row %d:\n%s", d.top, d.view())
	}
	d.press("G", "k", "k")
	top := d.top
	d.press("enter")
	d.tell(resized{30, 8})
	d.tell(resized{80, 24})
	d.see(everything(noon.Add(time.Second)))
	d.press("esc")
	if d.top != top {
		t.Errorf("the list begins at row %d, not %d", d.top, top)
	}
}

func TestNameIsCutBeforeItsMarks(t *testing.T) {
	for _, c := range []struct {
		name, marks string
		w           int
		want        string
	}{
		{"a.lock", "clock held 12m", 21, "a.lock clock held 12m"},
		{"a.lock", "clock held 12m", 30, "a.lock clock held 12m"},
		{"web-app index/8eb3/cache.lock", "clock held 12m", 27, "web-a…e.lock clock held 12m"},
		{"web-app index/8eb3/cache.lock", "* blocked clock held 12m", 20, "web…lock * blocked …"},
		{"a.lock", "clock", 8, "a.lock …"},
		{"a.lock", "", 5, "a.…ck"},
		{"a.lock", "clock", 0, ""},
	} {
		if got := nameCell(text.Style{}, c.name, c.marks, c.w); got != c.want {
			t.Errorf("%q %q in %d: got %q, want %q", c.name, c.marks, c.w, got, c.want)
		}
	}
	d := sit(t, screenFor(), 80, 24)
	w := &world{at: noon}
	w.lock("a.lock", "", time.Second, alive(1), func(f *verdict.LockFacts) {
		f.Record.CreatedAtMS = uint64(noon.Add(-12 * time.Minute).UnixMilli())
		f.Record.HeartbeatAtMS = uint64(noon.Add(48 * time.Hour).UnixMilli())
		f.Beat = noon.Add(48 * time.Hour)
	})
	d.see(w.snapshot())
	d.wants("a.lock clock held 12m")
}

func TestHolderGetsTheRoomThatNamesDoNotNeed(t *testing.T) {
	for _, c := range []struct {
		w          int
		name, want string
	}{
		{200, "agent", " stable 0.57.12-rc1 "},
		{100, "agent", " stable 0.57.12-rc1 "},
		{80, "agent", " stable 0.57.12-rc1 "},
		{80, strings.Repeat("n", 25), " stable "},
		{140, strings.Repeat("long-name-", 6), " stable "},
		{200, strings.Repeat("long-name-", 6), " stable 0.57.12-rc1 "},
	} {
		d := sit(t, screenFor(), c.w, 30)
		w := &world{at: noon}
		w.lease(c.name, time.Second, alive(1), func(f *verdict.LeaseFacts) { f.Record.Version = "0.57.12-rc1" })
		d.see(w.snapshot())
		line := ansi.Strip(d.listPane(d.layout().list)[1])
		if !strings.Contains(line, c.want) || !strings.Contains(c.want, "0.57") && strings.Contains(line, "0.5") {
			t.Errorf("at %d: %q", c.w, line)
		}
		if got := text.Width(line); got != d.layout().list.w {
			t.Errorf("at %d the line takes %d cells", c.w, got)
		}
	}
}
