// A process of the scenario kills with BullMQ: the producer or a worker, as Child in child.go.
import { Queue, Worker } from 'bullmq';
import Redis from 'ioredis';
import { setTimeout as sleep } from 'node:timers/promises';

const { addr, role, stalled } = JSON.parse(process.env.HOLDFAST_BENCH_KILLS);
const [host, port] = addr.split(':');
const connection = { host, port: Number(port) };
const data = new Redis(connection);

let over = false;
process.stdin.resume().on('end', () => {
  over = true;
  if (role !== 'producer') process.exit(0);
});

if (role === 'producer') {
  const queue = new Queue('projections', { connection });
  for (let i = 0; !over; i++) {
    const projection = String(Math.floor(i / 4) + Math.floor(Math.random() * 6));
    await data.hincrby('data:counts', projection, 1);
    await queue.add('rebuild', { projection }, {
      deduplication: { id: projection, keepLastIfActive: true }, removeOnComplete: true, removeOnFail: true,
    });
    await sleep(Math.random() * 50);
  }
  process.exit(0);
}

const die = () => process.kill(process.pid, 'SIGKILL');
const life = Math.random() * 8_000;
const from = Date.now() + life;
if (role === 'moment') setTimeout(die, life);

async function tell(event, projection, value) {
  await data.rpush('data:journal', `${process.pid} ${event} ${projection} ${value}`);
  if (event === role && Date.now() > from) die();
}

async function rebuild({ data: { projection } }) {
  await tell('began', projection, '-');
  const seen = await data.hget('data:counts', projection);
  await sleep(100 + Math.random() * 200);
  await tell('ended', projection, seen);
}

const worker = new Worker('projections', rebuild, { connection, concurrency: 10, maxStalledCount: stalled });
worker.on('error', console.error);
