package tui

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"holdfast/fslock/verdict"
	"holdfast/watch"
)

var updateGolden = flag.Bool("update", false, "write testdata/*.golden anew")

// compareGolden compares a picture, right-trimmed so that it can be read in a review.
func compareGolden(t *testing.T, name string, d *desk) {
	t.Helper()
	checkPicture(t, d.model)
	var b strings.Builder
	for s := range strings.SplitSeq(d.view(), "\n") {
		b.WriteString(strings.TrimRight(s, " ") + "\n")
	}
	path := filepath.Join("testdata", name+".golden")
	if *updateGolden {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s differs (go test ./tui -update writes it anew):\n%s", path, b.String())
	}
}

// checkPicture checks what every picture owes the terminal.
func checkPicture(tb testing.TB, m *model) {
	tb.Helper()
	if problem := pictureProblem(m); problem != "" {
		tb.Fatal(problem)
	}
}

func pictureProblem(m *model) string {
	if m.w == 0 || m.h == 0 {
		return ""
	}
	lines := strings.Split(m.view(), "\n")
	if len(lines) != m.h {
		return fmt.Sprintf("%d lines on a screen of %dx%d", len(lines), m.w, m.h)
	}
	for i, s := range lines {
		if w := max(ansi.StringWidth(s), ansi.StringWidthWc(s)); w > m.w {
			return fmt.Sprintf("line %d takes %d cells of %d: %q", i, w, m.w, s)
		}
		if m.paint.bare && strings.ContainsRune(s, '\x1b') {
			return fmt.Sprintf("line %d has an escape sequence without colours: %q", i, s)
		}
		for _, r := range ansi.Strip(s) {
			if r < ' ' || m.paint.ASCII && r > '~' {
				return fmt.Sprintf("line %d holds %q: %q", i, r, s)
			}
		}
	}
	return ""
}

func TestEveryStateAtEverySize(t *testing.T) {
	for _, size := range []struct {
		name string
		w, h int
	}{{"140x40", 140, 40}, {"80x24", 80, 24}, {"50x12", 50, 12}} {
		for _, look := range []struct {
			name  string
			plain bool
			ascii bool
		}{{"colour", false, false}, {"nocolor", true, false}, {"ascii", true, true}} {
			t.Run(size.name+"-"+look.name, func(t *testing.T) {
				s := screenFor()
				s.NoColor, s.ASCII = look.plain, look.ascii
				d := sit(t, s, size.w, size.h)
				d.see(everything(noon))
				compareGolden(t, size.name+"-"+look.name, d)
			})
		}
	}
}

func TestPictures(t *testing.T) {
	for _, c := range []struct {
		name string
		w, h int
		do   func(*desk)
	}{
		{"detail-blocked", 80, 40, func(d *desk) {
			d.choose(storage + "/inspect/8eb3d10c88aa02f1/writer.lease")
			d.press("enter")
		}},
		{"detail-raw", 80, 24, func(d *desk) {
			d.choose("torn")
			d.press("[")
		}},
		{"detail-process", 80, 24, func(d *desk) {
			d.choose("sleeper")
			d.finish(d.press("]"))
			d.press("enter")
		}},
		{"plan-claim", 80, 24, func(d *desk) {
			d.choose("reviewer")
			d.press("C")
		}},
		{"plan-changed", 80, 24, func(d *desk) {
			d.choose("crashed")
			d.press("C")
			w := &world{at: noon.Add(1e9), seq: 5}
			w.lease("crashed", 0, alive(77), nil)
			d.see(w.snapshot())
		}},
		{"plan-claim-50x12", 50, 12, func(d *desk) {
			d.choose("reviewer")
			d.press("C")
		}},
		{"plan-break", 80, 24, func(d *desk) {
			d.choose("crashed")
			d.press("B")
		}},
		{"plan-break-live", 80, 24, func(d *desk) {
			d.choose("researcher")
			d.plans("B")
			d.types("resea")
		}},
		{"plan-break-live-50x12", 50, 12, func(d *desk) {
			d.choose("researcher")
			d.plans("B")
			d.types("researcher")
			d.press("tab")
			d.types("it hangs")
		}},
		{"plan-token", 80, 24, func(d *desk) {
			d.choose(storage + "/inspect/8eb3d10c88aa02f1/writer.lease")
			for _, e := range d.fresh.Entries {
				if e.Kind == watch.Token {
					e.Raw = []byte("{}")
				}
			}
			d.plans("B")
			d.types("o")
		}},
		{"marked", 80, 24, func(d *desk) { d.marks("crashed", "reviewer", "researcher") }},
		{"plan-marked", 120, 40, func(d *desk) {
			d.marks("crashed", "reviewer", "researcher", "relay", storage+"/inspect/8eb3d10c88aa02f1/writer.lease")
			d.plans("B")
		}},
		{"plan-marked-50x12", 50, 12, func(d *desk) {
			d.marks("crashed", "reviewer", "researcher")
			d.plans("B")
		}},
		{"plan-marked-changed", 80, 24, func(d *desk) {
			d.marks("crashed", "reviewer", "researcher")
			d.plans("B")
			w := &world{at: d.clock, seq: 5}
			w.lease("crashed", 0, alive(77), nil)
			d.see(w.snapshot())
		}},
		{"plan-break-lock", 80, 24, func(d *desk) {
			d.choose(storage + "/index/11c0ffee11c0ffee/cache.lock")
			d.plans("B")
		}},
		{"plan-sweep-planning", 80, 24, func(d *desk) { d.press("W") }},
		{"litter", 80, 24, func(d *desk) { d.press("4") }},
		{"quit-with-hold", 80, 24, func(d *desk) {
			d.holding("researcher", "planner", storage+"/index/11c0ffee11c0ffee/cache.lock")
			d.press("q")
		}},
		{"lost", 80, 24, func(d *desk) {
			d.tell(delivery{losses: []loss{{held{name: "researcher"}, errMadeUp}}})
		}},
		{"help", 80, 24, func(d *desk) { d.press("?") }},
		{"actions", 80, 24, func(d *desk) {
			d.choose("researcher")
			d.press("a", "j")
		}},
		{"actions-50x12", 50, 12, func(d *desk) {
			d.choose("crashed")
			d.press("a", "j", "j")
		}},
		{"palette", 80, 24, func(d *desk) {
			d.choose("crashed")
			d.press(":")
			d.types("re")
		}},
		{"palette-all", 120, 30, func(d *desk) { d.press(":", "down") }},
		{"palette-error", 50, 12, func(d *desk) { d.says("sort colour") }},
		{"too-small", 40, 9, func(*desk) {}},
		{"problems", 80, 24, func(d *desk) { d.press("!") }},
		{"filter-error", 80, 24, func(d *desk) { d.press("/", "p", "i", "d", ":", "x") }},
		{"filtered-to-nothing", 80, 24, func(d *desk) { d.press("/", "z", "z", "enter") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := screenFor()
			s.NoColor = true
			d := sit(t, s, c.w, c.h)
			d.see(everything(noon))
			c.do(d)
			compareGolden(t, c.name, d)
		})
	}
}

func TestPicturesOfPlacesWithoutEntries(t *testing.T) {
	empty := &watch.Snapshot{Seq: 1, Time: noon, Roots: []watch.Root{
		{Path: registry, Kind: "agentmux", ChosenBy: "default", Watch: "inotify"},
		{Path: "/srv/nfs/aft", Kind: "missing", ChosenBy: "$AFT_STORAGE_DIR", Watch: "none", Reason: "there is nothing at this path"},
	}}
	failing := everything(noon)
	failing.Roots[1].Watch, failing.Roots[1].Every, failing.Roots[1].Reason = "poll", 1500*time.Millisecond, "nfs4 does not tell of changes made elsewhere"
	failing.Errors = []watch.EntryError{{Path: storage + "/index", Err: os.ErrPermission}}
	for _, c := range []struct {
		name string
		do   func(*desk)
	}{
		{"loading", func(*desk) {}},
		{"empty", func(d *desk) { d.see(empty) }},
		{"polling", func(d *desk) { d.see(failing) }},
		{"stale", func(d *desk) {
			d.see(everything(noon))
			d.tellAt(delivery{ended: true, reason: errMadeUp}, noon.Add(9e9))
		}},
		{"paused", func(d *desk) {
			d.see(everything(noon))
			d.press("p")
			w := &world{at: noon.Add(1e9), seq: 5}
			w.lease("researcher", 0, alive(77), nil)
			d.see(w.snapshot())
			d.later(1e9)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := screenFor()
			s.NoColor = true
			d := sit(t, s, 80, 24)
			c.do(d)
			compareGolden(t, c.name, d)
		})
	}
}

// The picture of every state is one: none is left out, nor any flag that a snapshot brings.
func TestThePictureOfEveryStateHasEachOfThem(t *testing.T) {
	states := map[verdict.State]bool{}
	var flags verdict.Flag
	tokens := 0
	for _, e := range everything(noon).Entries {
		states[e.Verdict.State] = true
		flags |= e.Verdict.Flags
		if e.Kind == watch.Token {
			tokens++
		}
	}
	for s, says := range stateHelp() {
		if says != "" && !states[verdict.State(s)] {
			t.Errorf("no entry is %v", verdict.State(s))
		}
	}
	for _, f := range []verdict.Flag{verdict.IsBlocked, verdict.LongHeld, verdict.EpochFlag} {
		if !flags.Has(f) {
			t.Errorf("no entry has %v", f.Strings())
		}
	}
	if tokens == 0 {
		t.Error("there is no token")
	}
}
