import sys
sys.path.insert(0,'/work/main')
import pytest
from tests.agents.pointers.test_conditional_records import *
def test_trace(chance):
    from tests.agents.pointers.interleavings import Explorer
    ex=Explorer([save("old"), save("two")], before=chance.begin, objects=stored(chance, OLD), losses=1)
    parent={ex._first:None}
    from collections import deque
    w=deque([ex._first]); bad=None
    while w:
        s=w.popleft()
        try: Visible(s.objects)
        except Exception as e: bad=s; break
        for n in range(2):
            for f in ex._steps(s,n):
                if f not in parent: parent[f]=(s,n); w.append(f)
    path=[]
    while bad and parent[bad]:
        p,n=parent[bad]; req=ex._after(n,p.told[n])[0]; path.append((n, req[0], req[1], req[2:] if req[0]=="put_if" else "", "->", bad.told[n][-1], 'LOST' if p.lost!=bad.lost else '')); bad=p
    for x in reversed(path): print(x)
