package sweep

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What is found around files, one after the other, is what a walk finds of them.
func TestAroundFilesIsFoundWhatAWalkFindsOfThem(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	names := []string{
		"a.lock", "a.lease", "a.lease.json", "a.epoch", ".a.lock.reclaim", ".a.lease.reclaim", ".a.lock.tmp.7.1.0", ".a.lock.tmp.7.1.1",
		"..a.lock.reclaim.tmp.7.1.0", ".registry-tmp-abc.json", "b.lock", ".b.lock.tmp.8.1.0", ".c.lock.reclaim", "Cargo.lock",
		".hidden.lease.json", "data.bin", "trusted-filter-projects.json.lock", ".trusted-filter-projects.json.lock.reclaim",
	}
	dirs := []string{"", "leases", "index", "index/k", "index/k/sub", "index/k/sub/deep", "pi/backups/s/.locks", "other", "other/x", "other/x/y"}
	for range 60 {
		root := t.TempDir()
		from := dirs
		if rnd.IntN(2) == 0 {
			from = []string{"", "other", "other/x", "other/x/y"} // a plain one
		}
		for range rnd.IntN(40) {
			path := filepath.Join(root, from[rnd.IntN(len(from))], names[rnd.IntN(len(names))])
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			content := []byte(fmt.Sprintf(`{"pid":%d,"hostname":"h","created_at_ms":1,"heartbeat_at_ms":1,"writer_epoch":"w"}`, rnd.IntN(9)+1))
			if rnd.IntN(3) == 0 {
				content = []byte("no lock")
			}
			if err := os.WriteFile(path, content, 0o600); err != nil && rnd.IntN(9) != 0 {
				t.Fatal(err)
			}
		}
		layout, err := Recognise(root)
		if err != nil {
			t.Fatal(err)
		}
		whole := layout.Find(t.Context())
		known := slices.Clone(whole.Temps)
		temps := func(lock string) iter.Seq[string] {
			return func(yield func(string) bool) {
				for _, path := range known {
					if LockOf(path) == lock && !yield(path) {
						return
					}
				}
			}
		}
		var all []string
		for _, dir := range from {
			for _, name := range names {
				all = append(all, filepath.Join(root, dir, name))
			}
		}
		check := func(some []string) {
			t.Helper()
			a := layout.Around(some, temps)
			of := func(list []string) []string {
				return slices.DeleteFunc(slices.Clone(list), func(path string) bool { return !slices.Contains(a.Paths, path) })
			}
			for _, l := range []struct {
				what      string
				got, want []string
			}{
				{"locks", a.Found.Locks, of(whole.Locks)},
				{"tokens", a.Found.Tokens, of(whole.Tokens)},
				{"temps", a.Found.Temps, of(whole.Temps)},
				{"leases", a.Found.Leases, of(whole.Leases)},
			} {
				if !slices.Equal(l.got, l.want) {
					t.Fatalf("%s around %q: %q, a walk finds %q", l.what, some, l.got, l.want)
				}
			}
			if len(a.Found.Errors) != 0 {
				t.Fatalf("%v", a.Found.Errors)
			}
		}
		check(all)
		for _, path := range all {
			check([]string{path})
		}
		for _, path := range known { // one after the other goes, while all are still believed to be there
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			whole = layout.Find(t.Context())
			check([]string{path})
		}
	}
}

func TestFilesThatDecideTogetherHaveOneStem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`\.?[a-z.]{1,8}(\.lock|\.lease|\.lease\.json|\.epoch|\.lock\.reclaim|\.lock\.tmp\.1\.2\.3)?`).Draw(t, "name")
		for _, other := range family(name) {
			if stem(other) != stem(name) {
				t.Fatalf("%s is of the family of %s, and not of its stem: %q, %q", other, name, stem(other), stem(name))
			}
		}
	})
}
