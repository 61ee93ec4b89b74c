package sweep

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func names(t *testing.T, root string) *Names {
	t.Helper()
	l, err := Recognise(root)
	if err != nil {
		t.Fatal(err)
	}
	return &Names{Layout: l}
}

func TestHashedKeysAreDecoded(t *testing.T) {
	root := tree(t, "index/", "agents/registry/leases/a1.lease.json", "agents/registry/leases/a2.lease.json")
	for name, data := range map[string]string{
		"artifact-owners/8eb3/owner.json":        `{"schema_version":1,"project_scope_key":"8eb3","checkout_path":"/home/me/src/web-app","owner":{"pid":1}}`,
		"artifact-owners/odd/owner.json":         `{"checkout_path":17,"path":"/srv/docs/"}`,
		"artifact-owners/torn/owner.json":        `{"checkout_path":"/home/me/to`,
		"artifact-owners/huge/owner.json":        `{"checkout_path":"/x/` + strings.Repeat("y", 70_000) + `"}`,
		"artifact-owners/long/owner.json":        `{"checkout_path":"/x/` + strings.Repeat("y", 5000) + `"}`,
		"artifact-owners/list/owner.json":        `["/home/me"]`,
		"artifact-owners/slash/owner.json":       `{"checkout_path":"/"}`,
		"cache-keys.json":                        `{"/home/me/src/api":{"key":"11c0","recorded_at_ms":1},"/home/me/src/api2":{"key":"11c0"},"by-key":{"path":"/srv/one"},"plain":"/srv/two","/srv/three":"3333","none":7,"":{"key":""}}`,
		"opencode/backups/s1/f1/meta.json":       `{"path":"/home/me/src/web-app/main.go"}`,
		"opencode/backups/s1/session.json":       `{"session_id":"secret","path":"/home/me/src/web-app"}`,
		"opencode/backups/s2/session.json":       `{"session_id":"secret"}`,
		"agents/registry/a1.json":                `{"version":3,"data":{"instance_name":"researcher","token":"x"}}`,
		"agents/registry/a2.json":                `{"data":"none"}`,
		"opencode/backups/s1/.hidden/meta.json":  `{"path":"/never"}`,
		"opencode/backups/s3/session.json/x.txt": "a directory in its place",
	} {
		put(t, filepath.Join(root, name), false, data)
	}
	n := names(t, root)
	for path, want := range map[string]Name{
		"index/8eb3/cache.lock":                            {"web-app", "/home/me/src/web-app"},
		"index/8eb3/.cache.lock.reclaim":                   {"web-app", "/home/me/src/web-app"},
		"inspect/0f/8eb3/writer.lease":                     {"web-app", "/home/me/src/web-app"},
		"index/odd/cache.lock":                             {"docs", "/srv/docs/"},
		"index/torn/cache.lock":                            {},
		"index/huge/cache.lock":                            {},
		"index/long/cache.lock":                            {},
		"index/list/cache.lock":                            {},
		"index/slash/cache.lock":                           {"", "/"},
		"index/none/cache.lock":                            {},
		"callgraph/11c0/writer.lease":                      {"api", "/home/me/src/api"},
		"callgraph/by-key/writer.lease":                    {"one", "/srv/one"},
		"callgraph/plain/writer.lease":                     {"two", "/srv/two"},
		"callgraph/3333/writer.lease":                      {"three", "/srv/three"},
		"index/cache.lock":                                 {},
		"trusted-filter-projects.json.lock":                {},
		"opencode/backups/s1/.locks/f1.lock":               {"main.go", "/home/me/src/web-app/main.go"},
		"opencode/backups/s1/.locks/.f1.lock.reclaim":      {"main.go", "/home/me/src/web-app/main.go"},
		"opencode/backups/s1/.locks/.f1.lock.tmp.1.2.3":    {"main.go", "/home/me/src/web-app/main.go"},
		"opencode/backups/s1/.locks/f2.lock":               {"web-app", "/home/me/src/web-app"},
		"opencode/backups/s1/.locks/.hidden.lock":          {"web-app", "/home/me/src/web-app"},
		"opencode/backups/s2/.locks/f1.lock":               {},
		"opencode/backups/s3/.locks/f1.lock":               {},
		"agents/registry/leases/a1.lease.json":             {Short: "researcher"},
		"agents/registry/leases/a2.lease.json":             {},
		"agents/registry/leases/a3.lease.json":             {},
		"agents/registry/leases/.registry-tmp-Qw3xYz.json": {},
		"../elsewhere/index/8eb3/cache.lock":               {},
	} {
		if got := n.Of(filepath.Join(root, path)); got != want {
			t.Errorf("%s = %q, want %q", path, got, want)
		}
	}
}

func TestDecodingFollowsNoLinkAndNoFIFO(t *testing.T) {
	root := tree(t, "index/")
	outside := filepath.Join(t.TempDir(), "owner.json")
	put(t, outside, false, `{"checkout_path":"/secret"}`)
	put(t, filepath.Join(root, "artifact-owners/link"), true, "")
	symlink(t, outside, filepath.Join(root, "artifact-owners/link/owner.json"))
	symlink(t, outside, filepath.Join(root, "cache-keys.json"))
	n := names(t, root)
	if got := n.Of(filepath.Join(root, "index/link/cache.lock")); got != (Name{}) {
		t.Errorf("through a link: %q", got)
	}
}

func TestRootsWithoutNames(t *testing.T) {
	root := tree(t, "sub/x.lock")
	if got := names(t, root).Of(filepath.Join(root, "sub/x.lock")); got != (Name{}) {
		t.Errorf("in a plain directory: %q", got)
	}
	if got := (&Names{}).Of("x"); got != (Name{}) {
		t.Errorf("of the zero value: %q", got)
	}
}

func TestNamesAreReadAgainAfterAWhile(t *testing.T) {
	root := tree(t, "index/")
	path := filepath.Join(root, "index/8eb3/cache.lock")
	owner := filepath.Join(root, "artifact-owners/8eb3/owner.json")
	write := func(t *testing.T, name string) {
		t.Helper()
		put(t, owner, false, fmt.Sprintf(`{"checkout_path":"/src/%s"}`, name))
	}
	synctest.Test(t, func(t *testing.T) {
		n := names(t, root)
		expect := func(want string) {
			t.Helper()
			if got := n.Of(path).Short; got != want {
				t.Errorf("name = %q, want %q", got, want)
			}
		}
		expect("")
		write(t, "one")
		expect("") // not looked for again at every look
		time.Sleep(retryName)
		expect("one")
		write(t, "two")
		time.Sleep(keepName - time.Second)
		expect("one")
		time.Sleep(time.Second)
		expect("two")
		if err := os.Remove(owner); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(root, "cache-keys.json"), false, `{"/src/three":{"key":"8eb3"}}`)
		time.Sleep(keepName)
		expect("three")
		put(t, filepath.Join(root, "cache-keys.json"), false, `no json`)
		time.Sleep(retryName)
		expect("")
	})
}

func TestNamesAreForgottenWhenTheyAreTooMany(t *testing.T) {
	root := tree(t, "index/")
	put(t, filepath.Join(root, "artifact-owners/8eb3/owner.json"), false, `{"checkout_path":"/src/one"}`)
	n := names(t, root)
	n.known = make(map[string]known, maxNames)
	for i := range maxNames {
		n.known[fmt.Sprint(i)] = known{}
	}
	if got := n.Of(filepath.Join(root, "index/8eb3/cache.lock")).Short; got != "one" || len(n.known) > 2 {
		t.Errorf("name %q, %d remembered", got, len(n.known))
	}
}

func TestNamesMayBeAskedForAtTheSameTime(t *testing.T) {
	root := tree(t, "index/")
	put(t, filepath.Join(root, "cache-keys.json"), false, `{"/src/one":{"key":"k"}}`)
	n := names(t, root)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				if got := n.Of(filepath.Join(root, "index/k/cache.lock")).Short; got != "one" {
					t.Errorf("name = %q", got)
				}
				n.Of(filepath.Join(root, "index", fmt.Sprint(i), "cache.lock"))
			}
		})
	}
	wg.Wait()
}
