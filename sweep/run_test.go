package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/proc/proctest"
	"holdfast/fslock/record"
)

const week = 7 * 24 * time.Hour

// files is what stands in every file below a root, and when it was changed.
func files(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[path] = fmt.Sprint(info.Mode(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			all[path] += string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// logIn is an audit log of the test's own.
func logIn(t *testing.T) *audit.Log {
	t.Helper()
	return &audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}
}

func entries(t *testing.T, l *audit.Log) []audit.Entry {
	t.Helper()
	var all []audit.Entry
	for e, err := range l.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func paths(steps []Step) []string {
	var all []string
	for _, s := range steps {
		all = append(all, s.Path)
	}
	return all
}

// planned plans, and must find that many steps to take.
func planned(t *testing.T, s *Sweeper, removals int) Plan {
	t.Helper()
	plan, err := s.Plan(t.Context())
	if err != nil || len(plan.Errors) != 0 {
		t.Fatal(err, plan.Errors)
	}
	n := 0
	for _, step := range plan.Steps {
		if step.Remove {
			n++
		}
	}
	if n != removals {
		t.Fatalf("%d removals are planned, want %d", n, removals)
	}
	return plan
}

func TestRunRemovesWhatThePlanSaysAndNothingElse(t *testing.T) {
	root := t.TempDir()
	litter := map[string][]byte{ // and whether a plan without temps has it
		"index/a/.dead.lock.reclaim":                recordOf(999, "here"),
		"index/a/.old.lease.reclaim":                []byte("{"),
		"index/a/.empty.lock.reclaim":               nil,
		"opencode/backups/s/.locks/.f.lock.reclaim": recordOf(999, "here"),
		"index/b/.dead.lock.tmp.999.1.0":            recordOf(999, "here"),
		"index/b/.named.lock.tmp.999.1.0":           nil,
		"index/b/.old.lock.tmp.0.1.0":               []byte("{"),
		"leases/.registry-tmp-Qw3xYz.json":          []byte("{"),
	}
	for path, data := range litter {
		putOld(t, filepath.Join(root, path), data, week)
	}
	for path, data := range map[string][]byte{
		"index/a/dead.lock":                 recordOf(999, "here"), // a lock is a contender's to take
		"index/a/.dead.lock.guard":          nil,
		"index/a/.live.lock.reclaim":        recordOf(4242, "here"),
		"index/a/.other.lock.reclaim":       recordOf(999, "web02"),
		"index/a/.big.lock.reclaim":         make([]byte, record.MaxSize+1),
		"index/a/.notes.reclaim":            []byte("an editor's, a week old"),
		"index/a/.notes.txt.reclaim":        recordOf(999, "here"),
		"index/a/.reclaim":                  nil,
		"index/b/.live.lock.tmp.999.1.0":    recordOf(4242, "here"),
		"index/b/.other.lock.tmp.999.1.0":   recordOf(999, "web02"),
		"index/b/.big.lock.tmp.0.1.0":       make([]byte, record.MaxSize+1),
		"index/b/.Cargo.lock.tmp.old":       []byte("an editor's"),
		"index/b/.notes.tmp.999.1.0":        nil,
		"index/b/c/d/.deep.lock.reclaim":    recordOf(999, "here"),
		"backups/s/.locks/.no.lock.reclaim": recordOf(999, "here"),
		".other.lock.reclaim":               recordOf(999, "here"),
		"leases/a.lease.json":               []byte("{"),
		"leases/.a.lock.guard":              nil,
	} {
		putOld(t, filepath.Join(root, path), data, week)
	}
	putOld(t, filepath.Join(root, "index/a/.young.lock.reclaim"), []byte("{"), 30*time.Second)
	putOld(t, filepath.Join(root, "index/b/.young.lock.tmp.0.1.0"), []byte("{"), 23*time.Hour)
	want := files(t, root)

	for _, temps := range []bool{false, true} {
		log := logIn(t)
		s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Temps: temps, Audit: log, Reason: "spring"}
		plan := planned(t, s, 4)
		report, err := s.Run(t.Context(), plan)
		if err != nil || len(report.Kept)+len(report.Errors) != 0 || len(report.Removed) != 4 {
			t.Fatalf("with temps %v: %+v, %v", temps, report, err)
		}
		for i, e := range entries(t, log) {
			step := report.Removed[i]
			kind, rel := "token", relative(t, root, []string{step.Path})[0]
			if temps {
				kind = "temp"
			}
			if e.Action != audit.ActionSweep || e.Kind != kind || e.Reason != "spring" || e.Path != audit.Canonical(step.Path) ||
				!bytes.Equal(e.Before, litter[rel]) {
				t.Errorf("entry %+v of %+v", e, step)
			}
			delete(want, step.Path)
		}
		if n := len(entries(t, log)); n != 4 {
			t.Errorf("%d entries in the audit log", n)
		}
		if got := files(t, root); !maps.Equal(got, want) {
			t.Errorf("with temps %v there are\n%q\nwant\n%q", temps, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}

		// The same plan once more: all of it is gone, and that is no error.
		report, err = s.Run(t.Context(), plan)
		if err != nil || len(report.Removed)+len(report.Errors) != 0 || len(report.Kept) != 4 ||
			report.Kept[0].Why != gone || report.Kept[0].Remove {
			t.Errorf("again: %+v, %v", report, err)
		}
		if n := len(entries(t, log)); n != 4 {
			t.Errorf("%d entries in the audit log after a run that removed nothing", n)
		}
	}
}

func TestWhatChangedSinceThePlanIsKept(t *testing.T) {
	const token, temp = "index/.a.lock.reclaim", "index/.a.lock.tmp.999.1.0"
	dead, torn := recordOf(999, "here"), []byte("{")
	appears := func(_ *testing.T, _ string, w *proctest.World) {
		w.Change(func(m *proctest.Machine) { m.Procs = append(m.Procs, proctest.Proc{PID: 999, Start: 777}) })
	}
	becomes := func(data []byte, age time.Duration) func(*testing.T, string, *proctest.World) {
		return func(t *testing.T, path string, _ *proctest.World) {
			t.Helper()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			putOld(t, path, data, age)
		}
	}
	rewritten := func(data []byte, age time.Duration) func(*testing.T, string, *proctest.World) {
		return func(t *testing.T, path string, _ *proctest.World) { t.Helper(); putOld(t, path, data, age) }
	}
	opened := func(t *testing.T, path string, w *proctest.World) {
		t.Helper()
		file, err := record.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		w.Change(func(m *proctest.Machine) {
			m.Procs[0].Writes = []proctest.File{{Dev: file.Stat.Dev, Ino: file.Stat.Ino}}
		})
	}
	link := func(t *testing.T, path string, _ *proctest.World) {
		t.Helper()
		if err := os.Rename(path, path+".moved"); err != nil {
			t.Fatal(err)
		}
		symlink(t, path+".moved", path)
	}
	for _, tc := range []struct {
		what, path string
		data       []byte
		change     func(t *testing.T, path string, w *proctest.World)
		why        string
	}{
		{"a dead token's process lives after all", token, dead, appears, "alive of pid 999"},
		{"a dead token is replaced by a live one", token, dead, becomes(recordOf(4242, "here"), 0), "not what the plan saw"},
		{"a dead token is replaced by another's dead one", token, dead, becomes(recordOf(998, "here"), 0), "not what the plan saw"},
		{"a dead token is rewritten by a living process", token, dead, rewritten(recordOf(4242, "here"), 0), "not what the plan saw"},
		{"a dead token is replaced by one that is being written", token, dead, becomes(nil, 0), "not what the plan saw"},
		{"a dead token is replaced by another machine's", token, dead, becomes(recordOf(999, "web02"), 0), "not what the plan saw"},
		{"a dead token is replaced by a link to it", token, dead, link, ""},
		{"a malformed token is written on", token, torn, rewritten([]byte(`{"`), 0), "not what the plan saw"},
		{"a malformed token is replaced by the same, young", token, torn, becomes(torn, 0), ""},
		{"a malformed token becomes whole", token, torn, rewritten(recordOf(4242, "here"), 0), "not what the plan saw"},
		{"a temp's process lives after all", temp, dead, appears, "In use by pid 999"},
		{"a named temp's process lives after all", temp, torn, appears, "In use by pid 999"},
		{"a temp is a new one of a living process", temp, dead, becomes(recordOf(4242, "here"), 0), "In use by pid 4242"},
		{"a temp is a new one of a dead process", temp, dead, becomes(recordOf(998, "here"), 0), "not what the plan saw"},
		{"an old temp is opened", "index/.a.lock.tmp.0.1.0", torn, opened, "pid 4242 has it open"},
		{"an old temp is written on", "index/.a.lock.tmp.0.1.0", torn, rewritten([]byte(`{"`), 0), "may still be written"},
		{"an old temp is another old one", "index/.a.lock.tmp.0.1.0", torn, becomes([]byte(`{"`), week), "not what the plan saw"},
		{"an old temp is a link to it", "index/.a.lock.tmp.0.1.0", torn, link, "a symlink"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			root := tree(t, "index/")
			path := filepath.Join(root, tc.path)
			putOld(t, path, tc.data, week)
			world := proctest.NewWorld(proctest.Machine{
				Host: "here", BootID: "boot", BootAt: time.Now().Add(-time.Hour), PIDNS: 1, Initial: true,
				Procs: []proctest.Proc{{PID: 4242, Start: 777, Name: "node"}},
			})
			log := logIn(t)
			s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: world.Table()}, Temps: true, Audit: log}
			plan := planned(t, s, 1)
			tc.change(t, path, world)
			before := files(t, root)
			report, err := s.Run(t.Context(), plan)
			if err != nil || len(report.Removed)+len(report.Errors) != 0 || len(report.Kept) != 1 {
				t.Fatalf("%+v, %v", report, err)
			}
			if k := report.Kept[0]; k.Path != path || k.Remove || k.Why == "" || !strings.Contains(k.Why, tc.why) {
				t.Errorf("kept for %q, want %q", k.Why, tc.why)
			}
			if after := files(t, root); !maps.Equal(before, after) {
				t.Errorf("was\n%q\nis\n%q", before, after)
			}
			if e := entries(t, log); len(e) != 0 {
				t.Errorf("the audit log tells of %+v", e)
			}
		})
	}
}

func TestReadOnlySweeperRunsNothing(t *testing.T) {
	root := t.TempDir()
	putOld(t, filepath.Join(root, "index/.a.lock.reclaim"), recordOf(999, "here"), week)
	log := logIn(t)
	s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine(), ReadOnly: true}, Audit: log}
	report, err := s.Run(t.Context(), planned(t, s, 1))
	place, ok := errors.AsType[*PlaceError](err)
	if !errors.Is(err, fslock.ErrReadOnly) || !ok || place.Path != root || len(report.Removed) != 0 || len(entries(t, log)) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestWithoutAnAuditLogNothingIsRemoved(t *testing.T) {
	root := t.TempDir()
	names := []string{"index/.a.lock.reclaim", "index/.b.lock.reclaim", "index/.c.lock.tmp.999.1.0"}
	for _, name := range names {
		putOld(t, filepath.Join(root, name), recordOf(999, "here"), week)
	}
	before := files(t, root)
	for what, path := range map[string]string{
		"a file is in the place of its directory": filepath.Join(root, names[0], "audit.jsonl"),
		"a directory is in its place":             root,
	} {
		s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Audit: &audit.Log{Path: path}, Temps: true}
		report, err := s.Run(t.Context(), planned(t, s, 3))
		if err != nil || len(report.Removed)+len(report.Kept) != 0 || len(report.Errors) != 3 {
			t.Fatalf("%s: %+v, %v", what, report, err)
		}
		for i, name := range names {
			if e := &report.Errors[i]; !errors.Is(e, fslock.ErrAudit) || e.Path != filepath.Join(root, name) {
				t.Errorf("%s: %v", what, e)
			}
		}
	}
	if after := files(t, root); !maps.Equal(before, after) {
		t.Errorf("was\n%q\nis\n%q", before, after)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	root := t.TempDir()
	putOld(t, filepath.Join(root, "index/.a.lock.reclaim"), recordOf(999, "here"), week)
	s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Audit: logIn(t)}
	plan := planned(t, s, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	report, err := s.Run(ctx, plan)
	if !errors.Is(err, context.Canceled) || len(report.Removed)+len(report.Kept)+len(report.Errors) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	if _, err := os.Lstat(plan.Steps[0].Path); err != nil {
		t.Error(err)
	}
}

// A plan can come from anywhere: what is no token or temp by its name is nobody's to sweep, however dead.
func TestStepOfAnotherKindOfFileIsAnError(t *testing.T) {
	root := t.TempDir()
	l := &fslock.Locker{Table: machine()}
	s := &Sweeper{Root: root, Locker: l, Audit: logIn(t)}
	at := func(name string) string { return filepath.Join(root, name) }
	for _, name := range []string{"cache.lock", ".notes.reclaim", ".a.lock.reclaim", ".a.lock.tmp.999.1.0"} {
		putOld(t, at(name), recordOf(999, "here"), week)
	}
	before := files(t, root)
	token := func(name string) *fslock.TokenInfo { return new(l.InspectToken(at(name))) }
	temp := func(name string) *fslock.TempInfo { return new(l.InspectTemp(at(name))) }
	plan := Plan{Errors: []PlaceError{{Path: "elsewhere", Err: fs.ErrPermission}}, Steps: []Step{
		{Path: at("cache.lock"), Remove: true, Token: token("cache.lock")},
		{Path: at("cache.lock"), Remove: true, Temp: temp("cache.lock")},
		{Path: at(".notes.reclaim"), Remove: true, Token: token(".notes.reclaim")},
		{Path: at(".a.lock.reclaim"), Remove: true},
		{Path: at(".a.lock.reclaim"), Remove: true, Token: token("cache.lock")},
		{Path: at(".a.lock.reclaim"), Remove: true, Temp: temp(".a.lock.reclaim")},
		{Path: at(".a.lock.tmp.999.1.0"), Remove: true, Token: token(".a.lock.tmp.999.1.0")},
		{Path: at(".a.lock.tmp.999.1.0"), Temp: temp(".a.lock.tmp.999.1.0")},
	}}
	report, err := s.Run(t.Context(), plan)
	if err != nil || len(report.Removed)+len(report.Kept) != 0 || len(report.Errors) != 8 || report.Errors[0].Path != "elsewhere" {
		t.Fatalf("%+v, %v", report, err)
	}
	for i := range report.Errors[1:] {
		if e := &report.Errors[i+1]; !errors.Is(e, errNoStep) || e.Path != plan.Steps[i].Path {
			t.Errorf("error %v", e)
		}
	}
	if after := files(t, root); !maps.Equal(before, after) {
		t.Errorf("was\n%q\nis\n%q", before, after)
	}
}

func TestTempThatAnotherMachineMayHaveOpenIsLeft(t *testing.T) {
	root := t.TempDir()
	putOld(t, filepath.Join(root, "index/.a.lock.tmp.0.1.0"), []byte("{"), week)
	var asked string
	s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Temps: true, Audit: logIn(t)}
	s.fileSystem = func(dir string) (string, bool) { asked = dir; return "nfs", false }
	plan := planned(t, s, 0)
	if len(plan.Steps) != 1 || !strings.Contains(plan.Steps[0].Why, "another machine") || asked != filepath.Join(root, "index") {
		t.Errorf("%+v, asked for %q", plan.Steps, asked)
	}
}

func TestTokenBesideALockThatIsAFileRoot(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"cache.lock", ".cache.lock.reclaim", ".other.lock.reclaim", ".cache.lock.tmp.999.1.0"} {
		putOld(t, filepath.Join(root, name), recordOf(999, "here"), week)
	}
	s := &Sweeper{Root: filepath.Join(root, "cache.lock"), Locker: &fslock.Locker{Table: machine()}, Temps: true, Audit: logIn(t)}
	report, err := s.Run(t.Context(), planned(t, s, 1))
	if err != nil || !slices.Equal(paths(report.Removed), []string{filepath.Join(root, ".cache.lock.reclaim")}) {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestCrashInReclaim(t *testing.T) {
	for _, tc := range []struct {
		what   string
		data   []byte
		age    time.Duration
		remove bool
	}{
		{"DEAD", recordOf(999, "here"), 0, true},
		{"ME", recordOf(4242, "here"), week, false},
		{"malformed -30 s", []byte("{"), 30 * time.Second, false},
		{"malformed -61 s", []byte("{"), 61 * time.Second, true},
		{"another machine's", recordOf(999, "web02"), week, false},
	} {
		t.Run(tc.what, func(t *testing.T) {
			root := t.TempDir()
			lock, token := filepath.Join(root, "index/cache.lock"), filepath.Join(root, "index/.cache.lock.reclaim")
			putOld(t, lock, recordOf(999, "here"), week)
			putOld(t, token, tc.data, tc.age)
			s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Audit: logIn(t)}
			plan, err := s.Plan(t.Context())
			if err != nil || len(plan.Steps) != 1 {
				t.Fatalf("%+v, %v", plan, err)
			}
			report, err := s.Run(t.Context(), plan)
			if err != nil || len(report.Errors)+len(report.Kept) != 0 {
				t.Fatalf("%+v, %v", report, err)
			}
			if _, err := os.Lstat(token); errors.Is(err, fs.ErrNotExist) != tc.remove {
				t.Errorf("token: %v", err)
			}
			if _, err := os.Lstat(lock); err != nil {
				t.Errorf("the lock: %v", err)
			}
		})
	}
}

func TestTokensWithOddNames(t *testing.T) {
	long := "." + strings.Repeat("n", 241) + ".lock.reclaim"
	names := []string{".a\x1b[2J.lock.reclaim", ".new\nline.lock.reclaim", ". .lease.reclaim", long}
	if probe := filepath.Join(t.TempDir(), "\xff"); os.WriteFile(probe, nil, 0o600) == nil {
		names = append(names, ".\xff.lock.reclaim")
	}
	root := t.TempDir()
	for _, name := range names {
		putOld(t, filepath.Join(root, "index", name), recordOf(999, "here"), week)
	}
	log := logIn(t)
	s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Audit: log}
	report, err := s.Run(t.Context(), planned(t, s, len(names)))
	if err != nil || len(report.Removed) != len(names) || len(files(t, root)) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	for i, e := range entries(t, log) {
		if want := audit.Canonical(report.Removed[i].Path); e.Path != want {
			t.Errorf("the audit log has %q, want %q", e.Path, want)
		}
	}
}

func TestTwoSweepersAtOnceRemoveEachTokenOnce(t *testing.T) {
	const tokens, sweepers = 100, 4
	root := t.TempDir()
	for i := range tokens {
		putOld(t, filepath.Join(root, fmt.Sprintf("index/%d/.%d.lock.reclaim", i%7, i)), recordOf(999, "here"), week)
	}
	log := logIn(t)
	l := &fslock.Locker{Table: machine()}
	var all [sweepers]*Sweeper
	var plans [sweepers]Plan
	for i := range all {
		all[i] = &Sweeper{Root: root, Locker: l, Audit: log}
		if i%2 == 0 {
			all[i].Locker = &fslock.Locker{Table: machine()}
		}
		plans[i] = planned(t, all[i], tokens)
		if i%2 == 1 {
			slices.Reverse(plans[i].Steps)
		}
	}
	var reports [sweepers]Report
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() {
			report, err := s.Run(t.Context(), plans[i])
			if err != nil || len(report.Errors) != 0 || len(report.Removed)+len(report.Kept) != tokens {
				t.Errorf("%d removed, %d kept, errors %v, %v", len(report.Removed), len(report.Kept), report.Errors, err)
			}
			reports[i] = report
		})
	}
	wg.Wait()
	removed := map[string]int{}
	for _, report := range reports {
		for _, path := range paths(report.Removed) {
			removed[path]++
		}
	}
	for path, n := range removed {
		if n != 1 {
			t.Errorf("%s was removed %d times", path, n)
		}
	}
	if n := len(entries(t, log)); len(removed) != tokens || n != tokens || len(files(t, root)) != 0 {
		t.Errorf("%d removed, %d entries in the audit log, left: %d", len(removed), n, len(files(t, root)))
	}
}

// Whatever lies there and whatever happens between plan and run, what goes is litter at the moment it goes, and the
// report tells all.
func TestOnlyLitterGoesWhateverHappens(t *testing.T) {
	contents := rapid.SampledFrom([]string{"dead", "live", "other", "torn", "text", "empty"})
	names := rapid.SampledFrom([]string{
		".x.lock.reclaim", ".y.lease.reclaim", ".x.lock.tmp.999.1.2", ".x.lock.tmp.4242.1.2", ".x.lock.tmp.0.1.2", ".registry-tmp-1.json",
		".notes.reclaim", "x.lock", "x.lease", ".notes.tmp.999.1.2", ".x.lock.tmp.old",
	})
	ages := rapid.SampledFrom([]time.Duration{0, 30 * time.Second, 90 * time.Second, 23 * time.Hour, 25 * time.Hour, -time.Hour})
	records := map[string][]byte{
		"dead": recordOf(999, "here"), "live": recordOf(4242, "here"), "other": recordOf(999, "web02"),
		"torn": []byte("{"), "text": []byte("no record at all"), "empty": nil,
	}
	type file struct {
		content string
		age     time.Duration
	}
	litter := func(name string, f file) bool {
		malformed := f.content == "torn" || f.content == "text" || f.content == "empty"
		_, token := tokenOf(name)
		_, temp := tempOf(name)
		switch {
		case strings.HasSuffix(name, ".old"):
			return false
		case token:
			return f.content == "dead" || malformed && f.age > time.Minute
		case temp && malformed && strings.Contains(name, ".tmp.999."):
			return true
		case temp && malformed && strings.Contains(name, ".tmp.4242."):
			return false
		case temp:
			return f.content == "dead" || malformed && f.age > 24*time.Hour
		}
		return false
	}
	rapid.Check(t, func(r *rapid.T) {
		root := t.TempDir()
		putOld(t, filepath.Join(root, "index/none"), nil, 0)
		draw := func(label string) map[string]file {
			drawn := map[string]file{}
			for _, name := range rapid.SliceOfNDistinct(names, 1, 6, rapid.ID).Draw(r, label) {
				drawn[name] = file{contents.Draw(r, "content of "+name), ages.Draw(r, "age of "+name)}
				putOld(t, filepath.Join(root, "index", name), records[drawn[name].content], drawn[name].age)
			}
			return drawn
		}
		log := &audit.Log{Path: filepath.Join(root, "audit.jsonl")}
		s := &Sweeper{Root: root, Locker: &fslock.Locker{Table: machine()}, Temps: true, Audit: log}
		there := draw("before the plan")
		plan, err := s.Plan(t.Context())
		if err != nil {
			r.Fatal(err)
		}
		for _, step := range plan.Steps {
			if name := filepath.Base(step.Path); step.Remove != litter(name, there[name]) {
				r.Fatalf("%s of %+v is planned as %v: %s", name, there[name], step.Remove, step.Why)
			}
		}
		changed := draw("after it")
		maps.Copy(there, changed)
		report, err := s.Run(t.Context(), plan)
		if err != nil || len(report.Errors) != 0 {
			r.Fatalf("%v, %v", err, report.Errors)
		}
		removed := paths(report.Removed)
		for name, f := range there {
			path := filepath.Join(root, "index", name)
			_, err := os.Lstat(path)
			if slices.Contains(removed, path) != errors.Is(err, fs.ErrNotExist) {
				r.Fatalf("%s is reported wrong: %v", name, err)
			}
			if err != nil && !litter(name, f) {
				r.Fatalf("%s of %+v was removed", name, f)
			}
			if _, again := changed[name]; err == nil && !again && litter(name, f) {
				r.Fatalf("%s of %+v stayed", name, f)
			}
		}
		if got := len(entries(t, log)); got != len(removed) {
			r.Fatalf("%d entries, %d removed", got, len(removed))
		}
	})
}
