// An agent on the official openai package, as it would be written without agentlightning: it knows an
// address and a key from its environment, and calls tools until the model is done.

import OpenAI from "openai";

const client = new OpenAI({ maxRetries: 2 }); // OPENAI_BASE_URL, OPENAI_API_KEY
const [, , how, task] = process.argv;
const model = process.env.MODEL;
const parameters = { type: "object", properties: { a: { type: "integer" } } };

async function chat(stream) {
  const tools = [{ type: "function", function: { name: "add", parameters } }];
  const messages = [{ role: "user", content: task }];
  for (;;) {
    const asked = { model, messages, tools };
    const reply = stream
      ? await client.chat.completions.stream(asked).finalChatCompletion()
      : await client.chat.completions.create(asked);
    const { message } = reply.choices[0];
    if (!message.tool_calls?.length) return message.content;
    messages.push({ role: "assistant", content: null, tool_calls: message.tool_calls.map(plain) });
    for (const call of message.tool_calls)
      messages.push({ role: "tool", tool_call_id: call.id, content: "3" });
  }
}

function plain(call) {
  const { name, arguments: given } = call.function;
  return { id: call.id, type: "function", function: { name, arguments: given } };
}

async function responses(stream) {
  const tools = [{ type: "function", name: "add", parameters, strict: false }];
  let input = task;
  let previous_response_id;
  for (;;) {
    const asked = { model, input, tools, previous_response_id };
    const reply = stream
      ? await client.responses.stream(asked).finalResponse()
      : await client.responses.create(asked);
    const calls = reply.output.filter((item) => item.type === "function_call");
    if (!calls.length) return reply.output_text;
    previous_response_id = reply.id;
    input = calls.map(({ call_id }) => ({ type: "function_call_output", call_id, output: "3" }));
  }
}

async function completions(stream) {
  const reply = await client.completions.create({ model, prompt: task, stream });
  if (!stream) return reply.choices[0].text;
  let text = "";
  for await (const chunk of reply) text += chunk.choices[0]?.text ?? "";
  return text;
}

async function leave() {
  for await (const chunk of await client.chat.completions.create({
    model,
    messages: [{ role: "user", content: task }],
    stream: true,
  }))
    if (chunk.choices[0]?.delta?.content) break;
  return "left";
}

async function fail() {
  try {
    await client.chat.completions.create({ model, messages: [{ role: "user", content: task }] });
  } catch (error) {
    return `${error.constructor.name} ${error.status}: ${error.message}`;
  }
}

const stream = how.endsWith("-stream");
const agents = { chat, responses, completions, leave, fail };
const output = await agents[how.replace("-stream", "")](stream);
process.stdout.write(JSON.stringify({ output }));
