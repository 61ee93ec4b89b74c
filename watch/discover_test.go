package watch

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestRootsAreChosenByTheFirstVariableThatIsSet(t *testing.T) {
	const home = "/home/u"
	mux := Root{Path: "/home/u/.agentmux/shared", ChosenBy: "default"}
	aft := Root{Path: filepath.Join(home, filepath.FromSlash(ownStorageRules[len(ownStorageRules)-1].below)), ChosenBy: "default"}
	for _, c := range []struct {
		name string
		env  map[string]string
		home string
		want []Root
	}{
		{"nothing is set", nil, home, []Root{mux, aft}},
		{"all are empty", map[string]string{
			"AGENTMUX_HOME_OVERRIDE": "", "AGENTMUX_SHARED_DIR": "", "AGENTMUX_DATA_HOME": "",
			"AFT_STORAGE_DIR": "", "AFT_CACHE_DIR": "", "XDG_DATA_HOME": "",
		}, home, []Root{mux, aft}},
		{"all of AgentMux's", map[string]string{
			"AGENTMUX_HOME_OVERRIDE": "/o", "AGENTMUX_SHARED_DIR": "/s", "AGENTMUX_DATA_HOME": "/d",
		}, home, []Root{{Path: "/o/shared", ChosenBy: "$AGENTMUX_HOME_OVERRIDE"}, aft}},
		{"the shared directory before the data home", map[string]string{
			"AGENTMUX_SHARED_DIR": "/s", "AGENTMUX_DATA_HOME": "/d",
		}, home, []Root{{Path: "/s", ChosenBy: "$AGENTMUX_SHARED_DIR"}, aft}},
		{"the data home", map[string]string{
			"AGENTMUX_HOME_OVERRIDE": "", "AGENTMUX_DATA_HOME": "/d",
		}, home, []Root{{Path: "/d/shared", ChosenBy: "$AGENTMUX_DATA_HOME"}, aft}},
		{"all of AFT's", map[string]string{
			"AFT_STORAGE_DIR": "/a", "AFT_CACHE_DIR": "/c", "XDG_DATA_HOME": "/x",
		}, home, []Root{mux, {Path: "/a", ChosenBy: "$AFT_STORAGE_DIR"}}},
		{"the cache before XDG", map[string]string{
			"AFT_CACHE_DIR": "/c", "XDG_DATA_HOME": "/x",
		}, home, []Root{mux, {Path: "/c/aft", ChosenBy: "$AFT_CACHE_DIR"}}},
		{"XDG", map[string]string{
			"AFT_STORAGE_DIR": "", "XDG_DATA_HOME": "/x",
		}, home, []Root{mux, {Path: "/x/cortexkit/aft", ChosenBy: "$XDG_DATA_HOME"}}},
		{"no home", nil, "", nil},
		{"no home but a variable", map[string]string{"AFT_STORAGE_DIR": "/a"}, "", []Root{
			{Path: "/a", ChosenBy: "$AFT_STORAGE_DIR"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Discover(func(name string) string { return c.env[name] }, c.home)
			for i := range c.want {
				c.want[i].Path = filepath.FromSlash(c.want[i].Path)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}
