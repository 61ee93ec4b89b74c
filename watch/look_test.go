package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
)

func look(t *testing.T, roots ...string) *Snapshot {
	t.Helper()
	w := &Watcher{}
	for _, root := range roots {
		w.Roots = append(w.Roots, Root{Path: root, ChosenBy: "argument"})
	}
	s, err := w.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// crafted makes a tree of both systems with all kinds of entries and returns it with the lines that a look at it
// must give, those of its roots aside.
func crafted(t *testing.T) (root string, want string) {
	t.Helper()
	root = t.TempDir()
	self, now := proc.Local().Self(), time.Now()
	gone := self
	gone.PID, gone.StartTicks, gone.StartUnix = 1<<22+1, 5, 5 // over the largest pid that Linux gives

	leases := filepath.Join(root, "agents", "registry", "leases")
	putLease(t, leases, newLease(self, "live", now))
	putLease(t, leases, newLease(gone, "dead", now))
	put(t, filepath.Join(leases, "free.epoch"), []byte("7\n"))
	put(t, filepath.Join(leases, "free.lock"), nil)
	put(t, filepath.Join(leases, "torn.lease.json"), []byte(`{"instance_id":"`))
	if err := os.Symlink("live.lease.json", filepath.Join(leases, "link.lease.json")); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(leases, ".registry-tmp-abcdef.json"), nil)
	put(t, filepath.Join(leases, ".nfs0001"), nil)

	key := filepath.Join(root, "index", "8eb3")
	putLock(t, filepath.Join(key, "cache.lock"), newLock(self, now))
	putLock(t, filepath.Join(key, "writer.lease"), newLock(gone, now))
	elsewhere := newLock(self, now)
	elsewhere.Hostname, elsewhere.BootID = "old-host", nil
	putLock(t, filepath.Join(key, ".writer.lease.reclaim"), elsewhere)
	put(t, filepath.Join(key, "broken.lock"), []byte("not a lock\n"))
	putLock(t, filepath.Join(key, ".lost.lock.tmp.4194305.1.0"), newLock(gone, now))
	put(t, filepath.Join(key, "data.bin"), nil)
	if err := os.Mkdir(filepath.Join(key, "dir.lock"), 0o755); err != nil {
		t.Fatal(err)
	}

	want = fmt.Sprintf(`lease %[1]s/dead.lease.json dead (gone)
lease %[1]s/free.lease.json free
lease %[1]s/link.lease.json unreadable (not-regular) stuck
lease %[1]s/live.lease.json live
lease %[1]s/torn.lease.json unreadable (malformed) stuck
lock %[2]s/broken.lock unreadable (malformed) stuck
lock %[2]s/cache.lock live
lock %[2]s/dir.lock unreadable (not-regular) stuck
lock %[2]s/lost.lock free
lock %[2]s/writer.lease dead (gone) stuck
token %[2]s/.writer.lease.reclaim unknown
temp %[1]s/.registry-tmp-abcdef.json in-use
temp %[2]s/.lost.lock.tmp.4194305.1.0 litter (gone)
`, leases, key)
	return root, want
}

func TestEveryKindIsShownAndABadOneHidesNone(t *testing.T) {
	root, want := crafted(t)
	s := look(t, root)
	if got := lines(s); got != "root agentmux+aft "+root+"\n"+want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	r := s.Roots[0]
	if r.ChosenBy != "argument" || r.Watch != "none" || r.FS == "" {
		t.Errorf("root %+v", r)
	}
	if s.Observer.PID != os.Getpid() || s.Seq != 1 {
		t.Errorf("observer %+v, seq %d", s.Observer, s.Seq)
	}
	for _, e := range s.Entries {
		if e.Root != root || e.Subject == nil || e.Verdict.Sentence == "" || len(e.Verdict.Evidence) != 0 {
			t.Errorf("%s is not complete, or more: %+v", e.Path, e)
		}
		if again := e.Judge(s.Time); len(again.Evidence) == 0 || again.State != e.Verdict.State || again.Claimable != e.Verdict.Claimable {
			t.Errorf("%s was not judged at the snapshot's time: %+v, %+v", e.Path, e.Verdict, again)
		}
	}
	free, dead := find(s, filepath.Join(root, "agents/registry/leases/free.lease.json")), find(s, filepath.Join(root, "index/8eb3/writer.lease"))
	if free.ID != "free" || free.Epoch != 7 {
		t.Errorf("the free lease: %+v", free)
	}
	if dead.Token == nil || dead.Token.State != verdict.Unknown || dead.Token.Host != "old-host" || !dead.Verdict.Flags.Has(verdict.IsBlocked) {
		t.Errorf("the blocked lock's token: %+v", dead.Token)
	}
	for _, e := range s.Entries {
		if e.Kind == Token && e.LockOf != dead.Path {
			t.Errorf("the token is of %q", e.LockOf)
		}
	}
}

func TestNamesThatAPersonKnowsAreDecoded(t *testing.T) {
	root := t.TempDir()
	self, now := proc.Local().Self(), time.Now()
	leases := filepath.Join(root, "agents", "registry", "leases")
	putLease(t, leases, newLease(self, "a-1", now))
	put(t, filepath.Join(root, "agents", "registry", "a-1.json"), []byte(`{"data":{"instance_name":"researcher"}}`))
	lock := filepath.Join(root, "inspect", "8eb3", "writer.lease")
	putLock(t, lock, newLock(self, now))
	put(t, filepath.Join(root, "artifact-owners", "8eb3", "owner.json"), []byte(`{"checkout_path":"/src/web-app"}`))
	s := look(t, root)
	if e := find(s, filepath.Join(leases, "a-1.lease.json")); e == nil || e.Name != "researcher" || e.Title() != "researcher a-1" {
		t.Errorf("the agent is %+v", e)
	}
	if e := find(s, lock); e == nil || e.Name != "web-app" || e.Checkout != "/src/web-app" || e.Title() != "web-app inspect/8eb3/writer.lease" {
		t.Errorf("the lock is %+v", e)
	}
	for query, want := range map[string]string{
		"researcher": filepath.Join(leases, "a-1.lease.json"), "a-1": filepath.Join(leases, "a-1.lease.json"),
		"web-app": lock, lock: lock, "8eb3/writer.lease": lock, "writer.lease": lock, "b3/writer.lease": lock,
	} {
		if found := s.Find(query); len(found) != 1 || found[0].Path != want {
			t.Errorf("%s finds %v, not %s", query, found, want)
		}
	}
	for _, query := range []string{"", "nobody", "1", "earcher", "iter.lease", "lease", "3/iter.lease"} {
		if found := s.Find(query); len(found) != 0 {
			t.Errorf("%q finds %v", query, found)
		}
	}
	t.Chdir(filepath.Dir(lock))
	if found := s.Find("./writer.lease"); len(found) != 1 || found[0].Path != lock {
		t.Errorf("a relative path finds %v", found)
	}
}

func TestStuckAreLeasesAndLocksOnlyTheMostUrgentFirst(t *testing.T) {
	root, _ := crafted(t)
	var names []string
	for _, e := range look(t, root).Stuck() {
		names = append(names, filepath.Base(e.Path))
	}
	want := []string{"broken.lock", "dir.lock", "writer.lease", "link.lease.json", "torn.lease.json"} // by title
	if !slices.Equal(names, want) {
		t.Errorf("stuck are %q, not %q", names, want)
	}
}

func TestWhatIsNamedWhollyIsFoundBeforeTheEndOfAnother(t *testing.T) {
	s := &Snapshot{}
	for _, id := range []string{"alive", "a/live", "live"} {
		s.Entries = append(s.Entries, &Entry{Kind: Lease, ID: id, Path: "/r/leases/" + id + ".lease.json"})
	}
	for _, path := range []string{"/r/index/ab/x.lock", "/r/index/cb/x.lock", "/r/index/cd/y.lock"} {
		s.Entries = append(s.Entries, &Entry{Kind: Lock, Path: path, Name: "cache"})
	}
	for query, want := range map[string]string{
		"live": "/r/leases/live.lease.json", "ive": "", "a/live": "/r/leases/a/live.lease.json",
		"cb/x.lock": "/r/index/cb/x.lock", "b/x.lock": "", "x.lock": "/r/index/ab/x.lock /r/index/cb/x.lock",
		"d/y.lock": "/r/index/cd/y.lock", ".lock": "", "d/y": "", "ache": "",
	} {
		var got []string
		for _, e := range s.Find(query) {
			got = append(got, e.Path)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s finds %q, not %q", query, got, want)
		}
	}
	s.Entries = s.Entries[:1]
	if found := s.Find("live"); len(found) != 0 {
		t.Errorf("live is taken for %s", found[0].ID)
	}
}

func TestADirectoryReachedTwiceIsShownOnce(t *testing.T) {
	root, want := crafted(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	t.Run("a link is followed", func(t *testing.T) {
		s := look(t, link)
		if got := lines(s); got != "root agentmux+aft "+link+"\n"+strings.ReplaceAll(want, root, link) {
			t.Errorf("got\n%s", got)
		}
	})
	t.Run("the same and a link to it", func(t *testing.T) {
		s := look(t, root, link, root+"/.")
		if got := lines(s); got != "root agentmux+aft "+root+"\n"+want {
			t.Errorf("got\n%s", got)
		}
	})
	t.Run("one within the other", func(t *testing.T) {
		inner, lock := filepath.Join(link, "agents"), filepath.Join(link, "index", "8eb3", "cache.lock")
		s := look(t, root, inner, lock)
		if len(s.Roots) != 3 || len(s.Entries) != strings.Count(want, "\n") {
			t.Errorf("got\n%s", lines(s))
		}
		s = look(t, lock, root)
		if len(s.Roots) != 2 || len(s.Entries) != strings.Count(want, "\n") || s.Entries[0].Path != lock {
			t.Errorf("the other way round\n%s", lines(s))
		}
	})
}

func TestAMissingRootIsNoError(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "not", "there")
	s := look(t, missing, missing)
	if len(s.Roots) != 1 || s.Roots[0].Kind != "missing" || s.Roots[0].Reason == "" || len(s.Entries)+len(s.Errors) != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestARootThatIsAFileIsThatOneEntry(t *testing.T) {
	root, _ := crafted(t)
	for file, want := range map[string]string{
		"index/8eb3/cache.lock":                      "lock ROOT/index/8eb3/cache.lock live\n",
		"agents/registry/leases/dead.lease.json":     "lease ROOT/agents/registry/leases/dead.lease.json dead (gone)\n",
		"agents/registry/leases/torn.lease.json":     "lease ROOT/agents/registry/leases/torn.lease.json unreadable (malformed) stuck\n",
		"index/8eb3/writer.lease":                    "lock ROOT/index/8eb3/writer.lease dead (gone) stuck\ntoken ROOT/index/8eb3/.writer.lease.reclaim unknown\n",
		"index/8eb3/.lost.lock.tmp.4194305.1.0":      "lock ROOT/index/8eb3/lost.lock free\ntemp ROOT/index/8eb3/.lost.lock.tmp.4194305.1.0 litter (gone)\n",
		"agents/registry/leases/link.lease.json":     "lease ROOT/agents/registry/leases/link.lease.json unreadable (not-regular) stuck\n",
		"agents/registry/leases/free.lock":           "lease ROOT/agents/registry/leases/free.lease.json free\n",
		"agents/registry/leases/missing.lease.json/": "",
	} {
		path := filepath.Join(root, file)
		kind := "file"
		if want == "" {
			kind = "missing"
		}
		want = fmt.Sprintf("root %s %s\n", kind, path) + strings.ReplaceAll(want, "ROOT", root)
		if got := lines(look(t, path)); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
}

// No claim is granted here for some names that a lease file can have; it is judged all the same.
func TestALeaseFileOfARefusedIDIsJudged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "aux.lease.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := look(t, path)
	if len(s.Entries) != 1 || len(s.Errors) != 0 || s.Entries[0].Kind != Lease || s.Entries[0].Verdict.State != verdict.Unreadable {
		t.Errorf("got %s", lines(s))
	}
}

func TestAFinishedContextIsTheOnlyError(t *testing.T) {
	root, _ := crafted(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := &Watcher{Roots: []Root{{Path: root}}}
	if s, err := w.Look(ctx); !errors.Is(err, context.Canceled) || s != nil {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestClaimsGoThroughTheStoreThatLooked(t *testing.T) {
	w := &Watcher{ReadOnly: true, Table: proc.Local()}
	s := w.Store("/x/leases/")
	if s != w.Store("/x/leases") || s.Dir != "/x/leases" || !s.ReadOnly || s.Table != w.Table {
		t.Errorf("got %+v", s)
	}
	if first := w.Locker(); first != w.Locker() || first.Table != w.Table {
		t.Error("there are two lockers")
	}
}

// everything lists a tree with all that a look could change.
func everything(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v %d %v", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %q", data)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestLookingWritesNothing(t *testing.T) {
	root, _ := crafted(t)
	before := everything(t, root)
	w := &Watcher{Roots: []Root{{Path: root}, {Path: filepath.Join(root, "missing")}}}
	for range 3 {
		if _, err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, w)
	r.until(func(s *Snapshot) bool { return s.Roots[0].Watch != "none" })
	r.stop()
	if after := everything(t, root); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}

func TestAReadOnlyMountIsLookedAtAllTheSame(t *testing.T) {
	for _, tool := range []string{"unshare", "mount", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			skip(t, err.Error())
		}
	}
	root, want := crafted(t)
	private := []string{"--mount"}
	if os.Getuid() != 0 {
		private = append(private, "--map-root-user")
	}
	const script = `mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && ! touch "$1/x" 2>/dev/null || exit 9
exec "$2"`
	cmd := child(t, "unshare", "look", root)
	cmd.Args = append(cmd.Args, private...)
	cmd.Args = append(cmd.Args, "sh", "-c", script, "sh", root, testBinary(t))
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() != 3 {
		skip(t, "no read-only mount can be made: "+err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := string(out); got != "root agentmux+aft "+root+"\n"+want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
