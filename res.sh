source /var/tmp/h1env.sh; cd /var/tmp/h1work; export PYTHONPATH=$PYTHONPATH:/var/tmp/h1work CASE=${CASE:-gptdrop}; rm -rf pliant-runs/rs-*
r() { U=$1; W=$2; shift 2; X=; [ $U = shard ] && X='--set coordinator.use="planned"'; USE=$U nice -n 5 timeout 100 pliant run s.toml --workers $W $X --set run.name=\"rs-$NAME\" --set run.working_dir=\"/var/tmp/h1work\" --set run.max_restarts=0 "$@" -- $OLD prog.py > rs.log 2>&1; echo "$NAME $U $W $* rc=$? $(grep -h 'error:\|^steps' rs.log | head -2 | cut -c1-330 | tr '\n' ' ')"; }
NAME=ref; OUT=/var/tmp/h1work/rs-ref r state 1
for a in state shard; do for b in state shard; do NAME=$a-$b; OUT=/var/tmp/h1work/rs-x r $a 3 --set run.max_steps=4; rm -f rs-x.pt; OUT=/var/tmp/h1work/rs-x r $b 2 --resume; $OLD - <<'P'
import torch, os
if os.path.exists("rs-x.pt"):
    a,b=torch.load("rs-ref.pt"),torch.load("rs-x.pt"); print("   SAME" if all(torch.equal(a[k],b[k]) for k in a) else "   DIFF")
P
done; done
