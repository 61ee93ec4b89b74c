package tui

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/tui/text"
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
		if c.held {
			d.holding("agent-1")
		}
		d.tokens = 19
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

// The hint says what to press: it is the last that a narrow screen leaves out.
func TestHeadlineCutsTheNameFirst(t *testing.T) {
	d := opened(t, 80, 24)
	stopped := d.stuck[len(d.stuck)-1:]
	for _, c := range []struct {
		stuck []*watch.Entry
		w     int
		want  string
	}{
		{nil, 0, "Nothing is stuck."},
		{stopped, 0, "1 stuck: index/8eb3…/cache.lock (web-app), pid 48377 is stopped. Go."},
		{stopped, 68, "1 stuck: index/8eb3…/cache.lock (web-app), pid 48377 is stopped. Go."},
		{stopped, 67, "1 stuck: index/8eb…/cache.lock (web-app), pid 48377 is stopped. Go."},
		{stopped, 60, "1 stuck: in…/cache.lock (web-app), pid 48377 is stopped. Go."},
		{stopped, 52, "1 stuck: inde…/cache.lock, pid 48377 is stopped. Go."},
		{stopped, 45, "1 stuck: inde…/cache.lock, pid 48377 is… Go."},
		{append(stopped, stopped...), 80, "2 stuck: index/8eb3…/cache.lock (web-app), pid 48377 is stopped. And 1 more. Go."},
		{append(stopped, stopped...), 79, "2 stuck: index/8eb…/cache.lock (web-app), pid 48377 is stopped. And 1 more. Go."},
		{append(stopped, stopped...), 69, "2 stuck: index/8eb3…/cache.lock (web-app), pid 48377 is stopped. Go."},
		{d.stuck[1:2], 0, "1 stuck: uncounted, blocked by " + d.stuck[1].Verdict.Claimable.By + ". Go."},
	} {
		got := Headline(d.paint.Style, c.stuck, "Go.", c.w)
		if got != c.want {
			t.Errorf("at %d: got %q, want %q", c.w, got, c.want)
		}
		if c.w > 0 && text.Width(got) > c.w {
			t.Errorf("%q is wider than %d", got, c.w)
		}
	}
}

func TestHeadlineSaysAllOnAnOrdinaryTerminal(t *testing.T) {
	w := &world{at: noon}
	all := everything(noon)
	for _, e := range all.Entries {
		if strings.HasSuffix(e.Path, "inspect/8eb3d10c88aa02f1/writer.lease") || e.Kind == watch.Token {
			w.entries = append(w.entries, e)
		}
	}
	d := sit(t, screenFor(), 80, 24)
	d.see(w.snapshot())
	d.wants("1 stuck: inspect/8e…/writer.lease, blocked by a token of old-host. B shows how.")
	d.paint.ASCII = true
	d.wants("1 stuck: inspect/8e~/writer.lease, blocked by a token of old-host. B shows how.")
}

// deadAndStopped is a snapshot in which a stopped lock stands far below what is dead.
func deadAndStopped(at time.Time) *watch.Snapshot {
	w := &world{at: at}
	for i := range 30 {
		w.lease(fmt.Sprintf("crashed-%02d", i), 3*time.Second, dead(proc.Gone), nil)
	}
	w.lock("index/a/cache.lock", "", 4*time.Minute, alive(48377), func(f *verdict.LockFacts) { f.Proc.Condition = proc.Stopped })
	return w.snapshot()
}

// What is stuck is in sight from the beginning, and whatever else is chosen, the key that the headline names leads to it.
func TestHeadlineNamesTheKeyThatLeadsToWhatIsStuck(t *testing.T) {
	d := sit(t, screenFor(), 80, 24)
	d.see(deadAndStopped(noon))
	const stopped = storage + "/index/a/cache.lock"
	at := func() string { return d.current().entry.Path }
	if at() != stopped {
		t.Errorf("the cursor begins at %s", at())
	}
	d.wants("1 stuck: index/a/cache.lock, pid 48377 is stopped. enter shows why.")
	d.wants("⊜ STOPPED index/a/cache.lock")
	d.press("g")
	d.wants("is stopped. ! goes to it.")
	d.press("!")
	if at() != stopped || d.cursor != 0 || d.top != 0 {
		t.Errorf("! leads to row %d, %s", d.cursor, at())
	}
	d.press("j", "j")
	d.wants("is stopped. g goes to it.")
	d.press("g")
	if at() != stopped {
		t.Errorf("g leads to %s", at())
	}
	d.press("!")
	if at() != stopped {
		t.Errorf("the way back leads to %s", at())
	}
	d.press("g", "N") // back over the end: the last problem
	if at() != stopped {
		t.Errorf("N leads to %s", at())
	}
	d.press("/")
	d.types("crashed")
	d.wants("The filter hides it: esc.")
	d.press("enter", "esc")
	d.wants("! goes to it.")
	d.press("s") // another order has another first
	d.press("!")
	if at() != stopped {
		t.Errorf("! leads to %s", at())
	}
	d.see(everything(noon))
	d.wants("4 stuck: symbols/77aa…/cache.lock, blocked by a symlink in its place.")
	d.press("1")
	d.wants("! shows them.")
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

// The setting that has to be raised is what whoever reads that a root is polled needs.
func TestWhyARootIsPolledFitsTheScreen(t *testing.T) {
	for reason, must := range map[string]string{
		"fs.inotify.max_user_watches is reached: no more directories can be watched":           "fs.inotify.max_user_watches is reached: ",
		"fs.inotify.max_user_instances (or open files) is reached: no watcher can be had":      "fs.inotify.max_user_instances (or open files) is reached",
		"changes on nfs4 are not all told by the kernel":                                       "changes on nfs4 are not all told by the kernel",
		"changes were found that the kernel did not tell of, with a reason of no use: " + home: "changes were found that the kernel did not tell of",
	} {
		for _, path := range []string{registry, storage, "/mnt/" + strings.Repeat("a-long-name/", 20) + "end"} {
			s := everything(noon)
			s.Roots[0].Path, s.Roots[0].Watch, s.Roots[0].Every, s.Roots[0].Reason = path, "poll", 1500*time.Millisecond, reason
			d := sit(t, screenFor(), 80, 24)
			d.see(s)
			d.wants("(poll): " + must)
			checkPicture(t, d.model)
		}
	}
}
