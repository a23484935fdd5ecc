package distributed

import (
	"strings"
	"testing"
)

func TestFromEnvironment(t *testing.T) {
	for _, c := range []struct {
		name string
		env  string
		want Config
		err  string
	}{
		{name: "nothing"},
		{name: "torchrun", env: "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=node1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=run",
			want: Config{Rank: 3, Size: 8, LocalRank: 1, Address: "node1:29500", Job: "run"}},
		{name: "IPv6", env: "RANK=0 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=1", want: Config{Size: 2, Address: "[::1]:1"}},
		{name: "a rank alone", env: "RANK=0 WORLD_SIZE=1"},
		{name: "Slurm", env: "SLURM_PROCID=5 SLURM_NTASKS=16 SLURM_LOCALID=5 SLURM_JOB_ID=1234 SLURM_STEP_NODELIST=gpu[07-08]",
			want: Config{Rank: 5, Size: 16, LocalRank: 5, Address: "gpu07:29661", Job: "1234"}},
		{name: "torchrun within Slurm", env: "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=2 SLURM_PROCID=0 SLURM_NTASKS=1",
			want: Config{Rank: 1, Size: 2, Address: "a:2"}},
		{name: "Open MPI on one machine", env: "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_PORT=99",
			want: Config{Rank: 1, Size: 2, LocalRank: 1, Address: "127.0.0.1:99"}},
		{name: "Open MPI on several", env: "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2",
			err: "distributed: OMPI_COMM_WORLD_SIZE says that there are 4 ranks, but MASTER_ADDR, the host of rank 0, is not set"},
		{name: "half of it", env: "RANK=1", err: "distributed: of the variables RANK and WORLD_SIZE one is set, both or none are needed"},
		{name: "no address", env: "RANK=1 WORLD_SIZE=2", err: "distributed: WORLD_SIZE says that there are 2 ranks, but MASTER_ADDR, the host of rank 0, is not set"},
		{name: "no port", env: "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a", err: "distributed: MASTER_ADDR is set, but MASTER_PORT is not"},
		{name: "no number", env: "RANK=one WORLD_SIZE=2", err: `distributed: the variable RANK is "one", it needs to be a number`},
		{name: "too large a rank", env: "RANK=2 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=5", err: "distributed: Rank is 2, it needs to be from 0 to 1 for Size 2"},
		{name: "no such port", env: "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=70000", err: `distributed: Address is "a:70000", its port needs to be from 1 to 65535`},
		{name: "absurd size", env: "RANK=1 WORLD_SIZE=1000000000 MASTER_ADDR=a MASTER_PORT=5", err: "distributed: Size is 1000000000, it needs to be from 1 to 65536"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := map[string]string{}
			for _, pair := range strings.Fields(c.env) {
				name, value, _ := strings.Cut(pair, "=")
				env[name] = value
			}
			got, err := fromEnvironment(func(name string) string { return env[name] })
			if c.err != "" {
				if err == nil || err.Error() != c.err {
					t.Fatalf("error %v, want %s", err, c.err)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("%+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

func TestFirstNode(t *testing.T) {
	for list, want := range map[string]string{
		"": "", "n1": "n1", "n1,n2": "n1", "n[1-3]": "n1", "n[07-09,12],login": "n07", "a,b[1-2]": "a", "r[2,5]x": "r2x", "r[2,5]x,s": "r2x",
	} {
		if got := firstNode(list); got != want {
			t.Errorf("firstNode(%q) is %q, want %q", list, got, want)
		}
	}
}
