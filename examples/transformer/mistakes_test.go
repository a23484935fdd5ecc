//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestMistakes makes the mistakes of a first hour in the program itself. Its user sees one line
// that names the flag or the file, what it was and what it needs to be. Nothing stays behind.
func TestMistakes(t *testing.T) {
	vocab, merges := gpt2Files(t)
	t.Chdir(t.TempDir())
	for name, content := range map[string]string{
		"text.txt": strings.Repeat("for i := range 10 {\n\tprint(i)\n}\n", 40), "other.txt": strings.Repeat("hello there\n", 40),
		"empty.txt": "", "short.txt": "hello", "latin1.txt": strings.Repeat("caf\xe9\n", 40), "odd.bin": "odd", "zipped.gz": "\x1f\x8b\x08" + strings.Repeat("zipped", 40),
	} {
		writeFile(t, name, content)
	}
	if err := os.MkdirAll("folder", 0o777); err != nil {
		t.Fatal(err)
	}
	first := append(append([]string{}, small...), "-steps", "5", "-decay-steps", "5", "-out", "done")
	if err := do(t, first...); err != nil {
		t.Fatal(err)
	}
	starts := strings.Join(small, " ") + " -steps 5 -decay-steps 5 "
	mistakes := []struct{ environment, args, want string }{
		{"", "-lr 1e-3", "there is no flag -lr: did you mean -rate?"},
		{"", "-step 100", "there is no flag -step: did you mean -steps?"},
		{"", "text.txt", `argument "text.txt" is no flag: did you mean -data text.txt?`},
		{"", "-resume done", "did you mean -out done?"},
		{"", "-serve localhost:8080", `"localhost:8080" stands behind -serve, whose value needs to follow an equals sign: -serve=localhost:8080`},
		{"", "-serve=8080", `the address "8080" needs to be a host and a port, such as localhost:7887`},
		{"", "-serve=0.0.0.0:80", "its host needs to be of this machine alone: localhost, 127.0.0.1 or ::1"},
		{"", "-steps 1e3", `invalid value "1e3" for flag -steps: it needs to be a whole number`},
		{"", "-rate 1,5", `invalid value "1,5" for flag -rate: it needs to be a number`},
		{"", "-seed -1", `invalid value "-1" for flag -seed: it needs to be a whole number, not negative`},
		{"", "-memory 24Q", `invalid value "24Q" for flag -memory: it is "24Q", it needs to be an amount of memory such as 24G or 800M`},
		{"", "-preset gpt3", `-preset is "gpt3", it needs to be one of cpu, gpt2,`},
		{"", "-preset gpt2 -batch 1 -device cpu", "million parameters and -steps 600000 of 40960 tokens would take about"},
		{"", starts + "-batch 200000000 -yes", "-batch is 200000000, with which the training takes about "},
		{"", starts + "-batch 2000000000", "-batch is 2000000000 and -context is 8, their product needs to be at most 2147483647"},
		{"", "-recipe adam", `-recipe has "adam", it needs to be speedrun, or some of`},
		{"", "-dim 100 -heads 3", "-dim is 100, it needs to be a multiple of -heads 3"},
		{"", "-layers 0", "-layers is 0, it needs to be at least 1"},
		{"", "-batch 0", "-batch is 0, it needs to be at least 1"},
		{"", "-dropout 10", "-dropout is 10, it needs to be at least 0 and less than 1"},
		{"", "-warmup 2000 -steps 100", "-warmup is 2000, it needs to be less than the 100 steps"},
		{"", "-compute fp16", `-compute is "fp16", it needs to be float32, tf32, bfloat16, float16 or fp8`},
		{"", "-bpe 100", "-bpe is 100, it needs to be at least 257"},
		{"", "-go-back 2 -checkpoint-every 0", "-go-back is 2, it needs checkpoints to go back to: -checkpoint-every"},
		{"", "-data txt.txt", "txt.txt: no such file or directory: did you mean"},
		{"", starts + "-data empty.txt", "empty.txt is empty, there is nothing to learn from"},
		{"", starts + "-data short.txt", "short.txt is too short for -context 8: 4 of its 5 tokens are to train on, which takes at least 9"},
		{"", starts + "-data latin1.txt", "latin1.txt: NewCharacters: text has the byte 0xe9 at byte 3 (line 1, character 4), it needs to be UTF-8"},
		{"", starts + "-data latin1.txt -bpe 300", "latin1.txt is no text in UTF-8, which it needs to be: it has 0xe9 at byte 3"},
		{"", starts + "-data zipped.gz -bpe 300", "zipped.gz is no text in UTF-8, which it needs to be: it has 0x8b at byte 1"},
		{"", starts + "-min-rate 1", "-min-rate is 1, it needs to be at most -rate 0.003"},
		{"", "-eval-every 0", "-eval-every is 0, it needs to be at least 1"},
		{"", "-best", "-best is given without -resume, it says from which checkpoint to go on"},
		{"", "-no-repeat -1", "-no-repeat is -1, it needs to be positive, or 0 for texts that may repeat themselves"},
		{"", "-lost maybe", `-lost is "maybe", it needs to be replace or fewer`},
		{"", "-shard everything", `-shard is "everything", it needs to be state or weights`},
		{"", "-weights int8 -sample x -out done", `-weights is "int8", it needs to be bfloat16 or float16`},
		{"", starts + "-data folder", "folder is a folder without the tokenizer.json that examples/prepare leaves beside tokens"},
		{"", starts + "-data odd.bin", "odd.bin holds tokens, which need -vocab and -merges to be read as text"},
		{"", starts + "-data odd.bin -vocab " + vocab + " -merges " + merges, "odd.bin has 3 bytes, tokens of two bytes each need an even number"},
		{"", starts + "-vocab " + vocab, "only one of -vocab and -merges is given, GPT-2's tokens need both"},
		{"", starts + "-vocab " + merges + " -merges " + vocab, "vocab: invalid character '#' looking for beginning of value; it needs to be a JSON object from tokens to ids"},
		{"", starts + "-vocab nowhere.json -merges " + merges, "nowhere.json: no such file or directory"},
		{"", starts + "-out text.txt", "-out text.txt is a file, it needs to be a folder"},
		{"", starts + "-out done", "-out done holds a run already: -resume goes on with it"},
		{"", starts + "-memory 1K", "memory is 1K, a step on batches of"},
		{"", "-resume", "there is no run in folder runs; name one with -out"},
		{"", "-resume -out folder", "folder holds no run"},
		{"", "-resume -out done -dim 32", "tokens.weight is"},
		{"", "-resume -out done -accumulation 2", "it needs the ranks and the accumulation that it began with"},
		{"", "-resume -out done -steps 3", "it has 5 steps, this loop ends at 3, which needs to be more"},
		{"", "-resume -out done -data other.txt", "other.txt is not what this run was started with"},
		{"", "-resume -preset tiny", "-preset is given with -resume, which goes on with the sizes of the run"},
		{"", "-sample hello", "there is no run in folder runs; name one with -out, or train one first"},
		{"", "-sample hello? -out done", "-sample: Characters: text has 'h' at byte 0 (line 1, character 1), it needs to be one of"},
		{"", "-sample for -out done -steps 3", "-steps belongs to training, -sample goes with -out,"},
		{"", "-sample for -out done -temperature -1", "-temperature is -1, it needs to be positive, or 0"},
		{"", "-sample for -out done -top-p 90", "-top-p is 90, it needs to be more than 0 and at most 1"},
		{"", "-export text.txt -out done", "-export text.txt is a file, it needs to be a folder"},
		{"", "-data https://example.com/text.txt", "it is an address, what is there needs to be downloaded to a file first"},
		{"", "-data ~/text.txt", "~ stands for the home folder only where it is not quoted"},
		{"", "-data ../nowhere/*.txt", "*.txt: no such file or directory"},
		{"", "-data text.txt other.txt", `argument "other.txt" is no flag: did you mean -data other.txt?`},
		{"", "-data /dev/zero -bpe 300", "/dev/zero is a device, it needs to be a file"},
		{"", "-data done", "done is a folder without the tokenizer.json that examples/prepare leaves beside tokens"},
		{"", "-steps 99999999999999999999", "it needs to be a whole number from -9223372036854775808 to 9223372036854775807"},
		{"", "-batch 12.5", `invalid value "12.5" for flag -batch: it needs to be a whole number`},
		{"", "-heads 5 -device cpu", "-dim is 128, it needs to be a multiple of -heads 5"},
		{"", "-preset=", `-preset is "", it needs to be one of cpu, gpt2,`},
		{"", "-preset tiny -steps 10 -warmup 10", "-warmup is 10, it needs to be less than the 10 steps"},
		{"", "-beta2 1", "-beta2 is 1, it needs to be at least 0 and less than 1"},
		{"", "-decay -1", "-decay is -1, it needs to be a number and not negative"},
		{"", "-clip Inf", "-clip is +Inf, it needs to be a number and not negative"},
		{"", "-compute FP8", `-compute is "FP8", it needs to be float32, tf32, bfloat16, float16 or fp8`},
		{"", "-sample", "-sample needs a value behind it (-help lists the flags)"},
		{"", "-sample x -out done/checkpoints", "done/checkpoints is a part of a run: did you mean -out done?"},
		{"", "-resume -out done/checkpoints/step-00000005", "step-00000005 is a part of a run: did you mean -out done?"},
		{"", "-resume -out done -batch 100000000 -steps 50", "-batch is 100000000, with which the training takes about "},
		{"", "-export /dev/null/x -out done", "not a directory"},
		{"", "-export= -out done", "-export is empty, it needs to be a folder"},
		{"", "-serve=localhost:99999", `the address "localhost:99999" needs to be a host and a port`},
		{"", "--version", "there is no flag -version (-help lists the flags)"},
		{"", "train", `argument "train" is no flag (-help lists them)`},
		{"", "-out text.txt/x " + starts, "-out: stat text.txt/x: not a directory"},
		{"", "-device gpu", `-device is "gpu", it needs to be auto, cpu, cuda or cuda:N`},
		{"", "-device cuda:99", `-device is "cuda:99": `},
		{"", "-gpus 64", "-gpus is 64: "},
		{"", "-shard weights", `-shard is "weights", it needs several GPUs, by -gpus or a launcher: this program is alone`},
		{"", "-share 2", "-share is 2, it needs several GPUs, by -gpus or a launcher: this program is alone"},
		{"RANK=0", starts, "of the variables RANK and WORLD_SIZE one is set, both or none are needed"},
		{"RANK=1 WORLD_SIZE=2", starts, "WORLD_SIZE says that there are 2 ranks, but MASTER_ADDR, the host of rank 0, is not set"},
		{"RANK=2 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=9", starts, "Rank is 2, it needs to be from 0 to 1 for Size 2"},
		{"RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=9", "-device cpu -gpus 4", "-device is given with -gpus"},
	}
	if len(mistakes) < 40 {
		t.Errorf("there are %d mistakes, want 40 or more", len(mistakes))
	}
	for _, m := range mistakes {
		program := exec.Command(os.Args[0], strings.Fields(m.args)...)
		program.Env = append(append(os.Environ(), asProgram+"=1"), strings.Fields(m.environment)...)
		var out, said bytes.Buffer
		program.Stdout, program.Stderr = &out, &said
		err := program.Run()
		line, rest, _ := strings.Cut(said.String(), "\n")
		t.Log(line)
		if err == nil || !strings.HasPrefix(line, "transformer: ") || !strings.Contains(line, m.want) || rest+out.String() != "" {
			t.Errorf("%s %s: %v, it says %q and %q, want one line with %q", m.environment, m.args, err, said.String(), out.String(), m.want)
		}
		if _, err := os.Stat("runs"); err == nil {
			t.Errorf("%s %s: a run's folder is there", m.environment, m.args)
			os.RemoveAll("runs")
		}
	}
}
