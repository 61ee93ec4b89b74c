package tui

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/watch"
)

func TestHeaderSaysHowItLooksAtEverySize(t *testing.T) {
	w := &world{at: noon}
	for i := range 321 {
		w.lease(fmt.Sprint("agent-", i), time.Second, alive(1), nil)
	}
	few := w.snapshot()
	many := *few
	many.Roots = append(slices.Clone(few.Roots), few.Roots...)
	for _, c := range []struct {
		s    *watch.Snapshot
		w    int
		held bool
		want string
	}{
		{few, 120, true, "holdfast ~/.agentmux/shared ~/.local/share/cortexkit/aft 321 entries 19 tokens 1 held inotify RO 14:02"},
		{few, 80, true, "holdfast ~/.age…shared ~/.loc…it/aft 321 entries 19 tokens 1 held inotify RO"},
		{few, 70, false, "holdfast ~/.ag…shared ~/.lo…it/aft 321 entries 19 tokens inotify RO"},
		{few, 68, true, "holdfast ~/.ag…shared ~/.lo…it/aft 321 entries 1 held inotify RO"},
		{few, 50, false, "holdfast 321 entries 19 tokens inotify RO 14:02"},
		{few, 50, true, "holdfast 321 entries 19 tokens 1 held inotify RO"},
		{&many, 80, true, "holdfast 321 entries 19 tokens 1 held inotify RO 14:02"},
	} {
		s := screenFor()
		s.ReadOnly, s.NoColor = true, true
		d := sit(t, s, c.w, 24)
		d.see(c.s)
		d.tokens = 19
		if c.held {
			d.holding("agent-1")
		}
		if got := oneSpaced(d.headerLine()); got != c.want {
			t.Errorf("at %d: got %q, want %q", c.w, got, c.want)
		}
	}
	s := screenFor()
	s.NoColor = true
	d := sit(t, s, 50, 10)
	d.see(few)
	d.holding("agent-1", "agent-2")
	d.press("p")
	d.hidden, d.total = 12345, 1234567890
	if got, want := oneSpaced(d.headerLine()), "holdfast 1234567890 2 held PAUSED +12345 RW"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHeadlineCutsNothingButTheName(t *testing.T) {
	d := opened(t, 80, 24)
	stopped := d.stuck[len(d.stuck)-1:]
	for _, c := range []struct {
		stuck []*watch.Entry
		w     int
		want  string
	}{
		{nil, 0, "Nothing is stuck."},
		{stopped, 0, "1 stuck: index/8eb3…/cache.lock (web-app), pid 48377 is stopped. Go."},
		{stopped, 69, "1 stuck: index/8eb3…/cache.lock (web-app), pid 48377 is stopped. Go."},
		{stopped, 67, "1 stuck: index/8eb3…/cache.lock (web-app), pid 48377 is stopped."},
		{stopped, 60, "1 stuck: index/…/cache.lock (web-app), pid 48377 is stopped."},
		{stopped, 20, "1 stuck: inde…/cache.lock (web-app), pid 48377 is stopped."},
		{append(stopped, stopped...), 69, "2 stuck: index/8eb3…/cache.lock (web-app), pid 48377 is stopped. Go."},
		{d.stuck[1:2], 0, "1 stuck: uncounted, blocked by " + d.stuck[1].Verdict.Claimable.By + ". Go."},
	} {
		got := Headline(d.paint.Style, c.stuck, "Go.", c.w)
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestReadOnlyScreenNamesNoKeyThatClaims(t *testing.T) {
	for _, readOnly := range []bool{true, false} {
		s := screenFor()
		s.ReadOnly = readOnly
		for _, size := range [][2]int{{200, 50}, {80, 24}} {
			d := sit(t, s, size[0], size[1])
			d.see(everything(noon))
			d.choose("crashed")
			if got := strings.Contains(d.screenText(), "C claim"); got == readOnly {
				t.Errorf("read-only %v, C claim is shown %v", readOnly, got)
			}
		}
	}
}

// What could not be seen may be stuck: nobody is told that nothing is.
func TestHeadlineTellsOfWhatCouldNotBeSeen(t *testing.T) {
	d := opened(t, 80, 24)
	d.see(&watch.Snapshot{
		Seq: d.snap.Seq + 1, Time: d.clock, Roots: d.snap.Roots, Errors: []watch.EntryError{{Path: "/x", Err: fs.ErrPermission}},
	})
	d.wants("1 place could not be looked at. Nothing else is stuck.")
}
