package sweep

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// tree makes files, and directories where a name ends in a slash, below a new directory.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		put(t, filepath.Join(root, name), strings.HasSuffix(name, "/"), "")
	}
	return root
}

func put(t *testing.T, path string, dir bool, data string) {
	t.Helper()
	if dir {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// below makes paths of what Find and Recognise return readable.
func relative(t *testing.T, root string, paths []string) []string {
	t.Helper()
	var rel []string
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			t.Errorf("%q is not absolute", path)
		}
		r, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		rel = append(rel, filepath.ToSlash(r))
	}
	return rel
}

func TestRootIsRecognised(t *testing.T) {
	for _, tc := range []struct {
		what, kind string
		names      []string
		leases     []string
	}{
		{what: "empty directory", kind: "plain"},
		{what: "AgentMux's data home", kind: "agentmux", names: []string{"shared/agents/registry/leases/"}, leases: []string{"shared/agents/registry/leases"}},
		{what: "AgentMux's shared folder", kind: "agentmux", names: []string{"agents/registry/leases/"}, leases: []string{"agents/registry/leases"}},
		{what: "a registry", kind: "agentmux", names: []string{"leases/"}, leases: []string{"leases"}},
		{what: "the leases themselves", kind: "agentmux", names: []string{"a.lease.json", "a.lock"}, leases: []string{"."}},
		{what: "counters alone, whose leases were released", kind: "agentmux", names: []string{"a.epoch", "a.lock"}, leases: []string{"."}},
		{what: "a directory of leases within leases", kind: "agentmux", names: []string{"a.lease.json", "leases/b.lease.json"}, leases: []string{".", "leases"}},
		{what: "an AFT storage", kind: "aft", names: []string{"index/"}},
		{what: "a storage in migration", kind: "aft", names: []string{".aft/"}},
		{what: "both at once", kind: "agentmux+aft", names: []string{"leases/", "symbols/"}, leases: []string{"leases"}},
		{what: "files with the names of folders", kind: "plain", names: []string{"leases", "index", "agents/registry/leases", ".lease.json"}},
		{what: "leases further down", kind: "plain", names: []string{"x/leases/a.lease.json", "registry/leases/"}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			root := tree(t, tc.names...)
			l, err := Recognise(root)
			if err != nil {
				t.Fatal(err)
			}
			if got := l.Kind.String(); got != tc.kind {
				t.Errorf("kind = %q, want %q", got, tc.kind)
			}
			if got := relative(t, l.Root, l.LeaseDirs); !slices.Equal(got, tc.leases) {
				t.Errorf("lease directories = %q, want %q", got, tc.leases)
			}
		})
	}
}

func TestRootThatIsALinkIsFollowedAndNothingBelowIt(t *testing.T) {
	outside := tree(t, "leases/a.lease.json", "index/key/cache.lock", "registry/leases/b.lease.json")
	root := tree(t, "key/")
	symlink(t, filepath.Join(outside, "leases"), filepath.Join(root, "leases"))
	symlink(t, filepath.Join(outside, "index"), filepath.Join(root, "index"))
	symlink(t, outside, filepath.Join(root, "agents"))
	l, err := Recognise(root)
	if err != nil || l.Kind != Plain {
		t.Errorf("links to a storage's folders make it %v, %v; want plain", l.Kind, err)
	}
	if f := l.Find(t.Context()); len(f.Locks)+len(f.Errors) != 0 || len(f.Dirs) != 2 {
		t.Errorf("a link below the root was followed: %+v", f)
	}

	link := filepath.Join(t.TempDir(), "link")
	symlink(t, outside, link)
	l, err = Recognise(link)
	if err != nil || l.Kind != AgentMux|AFT || l.Root != link {
		t.Errorf("link to a root = %+v, %v", l, err)
	}
	f := l.Find(t.Context())
	if got := relative(t, link, f.Locks); !slices.Equal(got, []string{"index/key/cache.lock"}) {
		t.Errorf("locks below a linked root = %q", got)
	}
}

func TestRelativeRootBecomesAbsolute(t *testing.T) {
	root := tree(t, "index/key/cache.lock")
	t.Chdir(root)
	l, err := Recognise(".")
	if err != nil || !filepath.IsAbs(l.Root) || l.Kind != AFT {
		t.Fatalf("Recognise(.) = %+v, %v", l, err)
	}
	if f := l.Find(t.Context()); len(f.Locks) != 1 {
		t.Errorf("found %+v", f)
	}
}

func TestMissingRootIsNoError(t *testing.T) {
	root := filepath.Join(t.TempDir(), "none")
	l, err := Recognise(root)
	if err != nil || l.Kind != Missing || l.Kind.String() != "missing" {
		t.Errorf("Recognise = %+v, %v", l, err)
	}
	if f := l.Find(t.Context()); len(f.Dirs)+len(f.Errors)+len(f.Locks) != 0 {
		t.Errorf("found %+v", f)
	}

	link := filepath.Join(t.TempDir(), "unmounted")
	symlink(t, root, link)
	if l, err := Recognise(link); err != nil || l.Kind != Missing {
		t.Errorf("link to nothing = %v, %v", l.Kind, err)
	}
}

func TestRootThatTheSystemRefuses(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 300))
	l, err := Recognise(long)
	var place *PlaceError
	if !errors.As(err, &place) || place.Path != long || !errors.Is(err, syscall.ENAMETOOLONG) || l.Kind != Missing {
		t.Fatalf("Recognise = %v, %v", l.Kind, err)
	}
	if n := strings.Count(err.Error(), long); n != 1 {
		t.Errorf("the path is named %d times in %q", n, err)
	}
	// A place whose error names another path, or none, is named itself.
	for _, inner := range []error{ErrTooMany, &fs.PathError{Op: "open", Path: "other", Err: syscall.EIO}} {
		if e := (&PlaceError{Path: "here", Err: inner}); !strings.HasPrefix(e.Error(), "here: ") || !errors.Is(e, inner) {
			t.Errorf("error %q", e)
		}
	}
}

func TestRootThatIsAFile(t *testing.T) {
	root := tree(t,
		"cache.lock", ".cache.lock.reclaim", ".cache.lock.tmp.1.2.3", "other.lock", "writer.lease",
		"a.lease.json", "a.lock", "b.epoch", "b.lock", "c.epoch", ".registry-tmp-Ab12.json", "odd")
	symlink(t, filepath.Join(root, "gone"), filepath.Join(root, "dangling.lock"))
	for _, tc := range []struct{ name, lease, locks, tokens, temps string }{
		{name: "writer.lease", locks: "writer.lease"},
		{name: "other.lock", lease: "other"},
		{name: ".cache.lock.reclaim", locks: "cache.lock", tokens: ".cache.lock.reclaim"},
		{name: ".cache.lock.tmp.1.2.3", locks: "cache.lock", tokens: ".cache.lock.reclaim", temps: ".cache.lock.tmp.1.2.3"},
		{name: ".registry-tmp-Ab12.json", temps: ".registry-tmp-Ab12.json"},
		{name: "a.lease.json", lease: "a"},
		{name: "a.lock", lease: "a"},
		{name: "b.epoch", lease: "b"},
		{name: "c.epoch", lease: "c"},
		{name: "b.lock", lease: "b"},
		{name: "odd", locks: "odd"},
		{name: "dangling.lock", lease: "dangling"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := Recognise(filepath.Join(root, tc.name))
			if err != nil || l.Kind != File || l.LeaseID != tc.lease {
				t.Fatalf("Recognise = %+v, %v", l, err)
			}
			if tc.lease != "" && !slices.Equal(l.LeaseDirs, []string{root}) {
				t.Errorf("lease directories = %q", l.LeaseDirs)
			}
			f := l.Find(t.Context())
			for _, list := range []struct {
				what, want string
				got        []string
			}{{"locks", tc.locks, f.Locks}, {"tokens", tc.tokens, f.Tokens}, {"temps", tc.temps, f.Temps}, {"dirs", ".", f.Dirs}} {
				if got := strings.Join(relative(t, root, list.got), " "); got != list.want {
					t.Errorf("%s = %q, want %q", list.what, got, list.want)
				}
			}
		})
	}
}

func TestLockFileOfALeaseIsNoLock(t *testing.T) {
	root := tree(t, "locks/cache.lock", "counted/a.epoch", "leased/a.lease.json", "leases/")
	for path, want := range map[string]string{
		"locks/cache.lock":    "", // lies beside nothing of a lease's
		"locks/new.lock":      "",
		"counted/a.lock":      "a",
		"counted/new.lock":    "new", // would be a flock file if it were there
		"leased/new.lock":     "new",
		"leased/.hid.lock":    "",
		"leased/writer.lease": "",
		"leases/new.lock":     "new", // a directory of leases by its name, without one in it
		"gone/leases/x.lock":  "x",
		"gone/x.lease.json":   "x",
		"gone/x.epoch":        "x",
		"gone/x.lock":         "",
		"gone/.lease.json":    "",
		"gone/.lock":          "",
	} {
		id, ok := LeaseOf(filepath.Join(root, filepath.FromSlash(path)))
		if id != want || ok != (want != "") {
			t.Errorf("LeaseOf(%s) = %q, %v, want %q", path, id, ok, want)
		}
	}
}

func TestNameOfATokenOrTempTellsItsLock(t *testing.T) {
	for name, want := range map[string]string{
		"d/.cache.lock.reclaim":          "d/cache.lock",
		"d/.writer.lease.reclaim":        "d/writer.lease",
		"d/.cache.lock.tmp.4242.17.0":    "d/cache.lock",
		"d/.cache.lock.tmp.x":            "d/cache.lock",
		"d/.a.lock.tmp.b.lock.tmp.1.2.3": "d/a.lock.tmp.b.lock",
		"d/.\xff\x1b[2J.lock.reclaim":    "d/\xff\x1b[2J.lock",
		"d/.lock.reclaim":                "",
		"d/.notes.reclaim":               "",
		"d/notes.lock.reclaim":           "",
		"d/.cache.lock":                  "",
		"d/.cache.txt.tmp.1.2.3":         "",
		"d/..a.lock.reclaim.tmp.1.2.3":   "d/a.lock", // of a token that was being made
		"d/.registry-tmp-Qw3xYz.json":    "",
		"d/.tmp.":                        "",
		"d.lock.reclaim/.tmp.1":          "",
		"d/.cache.lock.guard":            "",
	} {
		name, want := filepath.FromSlash(name), filepath.FromSlash(want)
		if got := LockOf(name); got != want {
			t.Errorf("LockOf(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestKindNamesItself(t *testing.T) {
	for kind, want := range map[Kind]string{
		AgentMux: "agentmux", AFT: "aft", AgentMux | AFT: "agentmux+aft", Plain: "plain", File: "file", Missing: "missing", 0: "",
	} {
		if kind.String() != want {
			t.Errorf("%d = %q, want %q", kind, kind, want)
		}
	}
	if AFT.Has(0) || Kind(0).Has(AFT) || !(AFT | AgentMux).Has(AFT) || AFT.Has(AFT|AgentMux) {
		t.Error("Has is wrong")
	}
}
