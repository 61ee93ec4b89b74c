package sweep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/fslock"
)

// readOnlyEnv makes the test binary look at a tree that it first mounts read-only, in a mount namespace of its own.
const readOnlyEnv = "SWEEP_TEST_READ_ONLY"

func TestMain(m *testing.M) {
	if line := os.Getenv(childEnv); line != "" {
		child(line)
		return
	}
	root := os.Getenv(readOnlyEnv)
	if root == "" {
		os.Exit(m.Run())
	}
	fmt.Println(func() error {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("cannot mount: %w", err)
		}
		if err := syscall.Mount(root, root, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("cannot mount: %w", err)
		}
		if err := syscall.Mount("", root, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("cannot mount: %w", err)
		}
		if err := os.WriteFile(filepath.Join(root, "probe"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
			return fmt.Errorf("cannot mount read-only: %w", err)
		}
		return lookAtAll(root)
	}())
}

// lookAtAll looks at all there is below a root, in every way.
func lookAtAll(root string) error {
	l, err := Recognise(root)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f := l.Find(ctx)
	infos := (&fslock.Locker{}).InspectAll(ctx, f.Locks, f.Tokens, f.Temps)
	names := &Names{Layout: l}
	for _, info := range infos.Locks {
		names.Of(info.Path)
	}
	plan, err := (&Sweeper{Root: root, Temps: true}).Plan(ctx)
	if err != nil {
		return err
	}
	if len(f.Errors) != 0 || len(infos.Locks) != 14 || len(infos.Tokens) != 4 || len(infos.Temps) != 2 || len(plan.Steps) != 6 {
		return fmt.Errorf("%d locks, %d tokens, %d temps, %d steps, errors %v",
			len(infos.Locks), len(infos.Tokens), len(infos.Temps), len(plan.Steps), f.Errors)
	}
	return nil
}

// state is all that a look could change of a tree: what is there, and every file's mode, links, size, times of change.
func state(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		all[path] = fmt.Sprint(st.Ino, st.Mode, st.Nlink, st.Uid, st.Size, st.Mtim, st.Ctim)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLookingChangesNothing(t *testing.T) {
	root := storageTree(t)
	for _, name := range []string{"index/8eb3/cache.lock", "callgraph/11c0/.writer.lease.reclaim"} {
		putOld(t, filepath.Join(root, name), recordOf(uint32(os.Getpid()), "here"), time.Minute)
	}
	put(t, filepath.Join(root, "artifact-owners/8eb3/owner.json"), false, `{"checkout_path":"/src/web-app"}`)
	if err := syscall.Mkfifo(filepath.Join(root, "semantic/11c0/cache.lock"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := state(t, root)
	for dir := range before { // for an ordinary user nothing could be written now
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			if err := os.Chmod(dir, 0o555); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
		}
	}
	before = state(t, root)
	if err := lookAtAll(root); err != nil {
		t.Error(err)
	}
	after := state(t, root)
	for path := range maps.Keys(before) {
		if before[path] != after[path] {
			t.Errorf("%s was changed:\n%s\n%s", path, before[path], after[path])
		}
	}
	if !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) {
		t.Error("something was made or removed")
	}
}

func TestLookingWorksOnAReadOnlyFileSystem(t *testing.T) {
	root := storageTree(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), readOnlyEnv+"="+root)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "cannot mount") {
		if os.Getenv("HOLDFAST_STRICT") == "1" {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skipf("%v: %s", err, out)
	}
	if got := strings.TrimSpace(string(out)); got != "<nil>" {
		t.Error(got)
	}
}
